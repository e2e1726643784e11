//! The engine as a pager drives it: it hears of faults, and of no use of a page that is in memory.

use std::collections::HashMap;

use pleat_codec::Folded;
use pleat_engine::{Engine, FaultAnswer, FillPlan, Preset, Settings, WayOut};
use pleat_trace::RegionNo;
use pleat_types::{PageNo, PageRange, SpaceId, StagingSlot, PAGE_SIZE};

use super::{Page, Policy, Touch};

/// Never short: the frames are counted here, and nothing but the choice of victims is the engine's.
const BUDGET_BYTES: u64 = 1 << 36;

/// One engine with a space for each region.
pub(super) struct Paged<'a> {
    engine: Engine,
    /// Where each page is.
    places: &'a [(RegionNo, PageNo)],
    /// Space of each region.
    spaces: Vec<SpaceId>,
    takers: Vec<(SpaceId, u32)>,
    is_resident: Vec<bool>,
    resident: usize,
    frames: usize,
    /// Which page of the history it is.
    numbers: HashMap<(SpaceId, PageNo), Page>,
    plan: FillPlan,
    victims: Vec<(SpaceId, PageNo)>,
}

impl<'a> Paged<'a> {
    pub(super) fn new(
        preset: &Preset,
        places: &'a [(RegionNo, PageNo)],
        frames: usize,
    ) -> Result<Paged<'a>, String> {
        let settings = Settings {
            budget_bytes: BUDGET_BYTES,
            reserve_bytes: 0,
            floor_bytes: 0,
            run_max: 1,
            swap: None,
            tracks_writes: false,
            write_out: preset.write_out,
            brings_neighbours: false,
            keeps_copies: false,
            checks: false,
        };
        let mut engine = Engine::new(settings, preset.parts(PAGE_SIZE as u64 * 64)?);
        let regions = places.iter().map(|(region, _)| region.0 + 1).max();
        let spaces: Vec<SpaceId> = (0..regions.unwrap_or(0))
            .map(|_| engine.add_space())
            .collect();
        let numbers = places.iter().zip(0..);
        let numbers =
            numbers.map(|(&(region, page), number)| ((spaces[region.0 as usize], page), number));
        Ok(Paged {
            numbers: numbers.collect(),
            takers: spaces.iter().map(|&space| (space, u32::MAX)).collect(),
            spaces,
            engine,
            places,
            is_resident: vec![false; places.len()],
            resident: 0,
            frames,
            plan: FillPlan::default(),
            victims: Vec::new(),
        })
    }

    /// Takes the page away that the engine names.
    fn evict(&mut self) {
        let mut victims = std::mem::take(&mut self.victims);
        self.engine.choose_victims(&self.takers, 1, &mut victims);
        for (space, page) in victims.drain(..) {
            assert_eq!(self.engine.way_out(space, page), WayOut::Take);
            let number = self.numbers[&(space, page)];
            self.is_resident[number as usize] = false;
            self.resident -= 1;
            let body = self.engine.taken(space, page, StagingSlot(0));
            let body = body.expect("nobody gave it up");
            let folded = Folded::Same(u64::from(number));
            let stored = self.engine.folded(body, folded, &[]);
            stored.expect("one word finds place");
        }
        self.victims = victims;
    }

    fn place(&self, page: Page) -> (SpaceId, PageNo) {
        let (region, page) = self.places[page as usize];
        (self.spaces[region.0 as usize], page)
    }
}

impl Policy for Paged<'_> {
    fn touch(&mut self, number: Page) -> Touch {
        if self.is_resident[number as usize] {
            return Touch::Hit;
        }
        if self.resident == self.frames {
            self.evict();
        }
        let (space, page) = self.place(number);
        let answer = self.engine.fault(space, page, true, &mut self.plan);
        assert_eq!(answer, FaultAnswer::Fill, "it is not being taken");
        self.engine.filled(space, PageRange::new(page, 1));
        self.is_resident[number as usize] = true;
        self.resident += 1;
        Touch::Miss
    }

    fn forget(&mut self, number: Page) {
        let (space, page) = self.place(number);
        self.engine.forget(space, PageRange::new(page, 1));
        self.resident -= usize::from(std::mem::take(&mut self.is_resident[number as usize]));
    }
}

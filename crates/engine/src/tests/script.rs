//! An engine with a layout that is easy to reckon with, and the few moves plain tests are made of.

use std::collections::BTreeMap;

use pleat_codec::Folded;
use pleat_policy::{admission_by_name, sizing_by_name};
use pleat_store::{Full, Growth, Handle, Layout, Usage};
use pleat_types::{CodecId, PageNo, PageRange, SpaceId, StagingSlot};

use crate::{
    BodyId, CacheFull, Engine, FaultAnswer, FillPlan, Parts, Settings, SwapSettings, SwapUnit,
    Victims, WriteOut, WritePlan,
};

/// Items side by side without gaps: frames are the payload rounded up, metadata is nothing, and
/// relocation never frees anything.
struct Seamless {
    items: BTreeMap<u32, Vec<u8>>,
    next: u32,
    payload_bytes: u64,
    /// It cannot grow beyond this.
    most_bytes: u64,
}

impl Seamless {
    fn of(most_bytes: u64) -> Seamless {
        Seamless {
            items: BTreeMap::new(),
            next: 0,
            payload_bytes: 0,
            most_bytes,
        }
    }
}

impl Layout for Seamless {
    fn name(&self) -> &'static str {
        "seamless"
    }

    fn insert(&mut self, bytes: &[u8], growth: Growth) -> Result<Handle, Full> {
        let payload_bytes = self.payload_bytes + bytes.len() as u64;
        let most_bytes = match growth {
            Growth::Denied => self.usage().frames_bytes,
            Growth::Allowed => self.most_bytes,
        };
        if payload_bytes > most_bytes {
            return Err(Full);
        }
        self.payload_bytes = payload_bytes;
        self.next += 1;
        self.items.insert(self.next, bytes.to_vec());
        Ok(Handle(self.next))
    }

    fn read_into(&self, handle: Handle, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.items[&handle.0]);
    }

    fn remove(&mut self, handle: Handle) {
        self.payload_bytes -= self.items.remove(&handle.0).unwrap().len() as u64;
    }

    fn relocate_to_free_cell(&mut self) -> bool {
        false
    }

    fn usage(&self) -> Usage {
        Usage {
            items: self.items.len() as u64,
            payload_bytes: self.payload_bytes,
            frames_bytes: self.payload_bytes.next_multiple_of(4096),
            ..Usage::default()
        }
    }
}

pub(crate) const CODEC: CodecId = CodecId(9);

pub(crate) struct Script {
    pub(crate) engine: Engine,
    pub(crate) space: SpaceId,
    slot: u32,
}

/// 100 pages of budget, 4 of reserve, runs of up to 16, a swap file without limit.
pub(crate) fn settings() -> Settings {
    Settings {
        budget_bytes: 100 * 4096,
        reserve_bytes: 4 * 4096,
        floor_bytes: 0,
        run_max: 16,
        swap: Some(clusters()),
        tracks_writes: false,
        write_out: WriteOut::OnDemand,
        brings_neighbours: false,
        keeps_copies: false,
        checks: false,
    }
}

/// Clusters of 8 KiB with fragments of 1 KiB.
pub(crate) fn clusters() -> SwapSettings {
    SwapSettings {
        fragment_bytes: 1024,
        cluster_bytes: 8192,
        unit: SwapUnit::Cluster,
        spans_blocks: true,
        overhead_bytes: 0,
        ahead_max: 1,
        virtual_percent: None,
        slack_bytes: 0,
        max_bytes: None,
    }
}

impl Script {
    pub(crate) fn new(settings: Settings, sizing: &str) -> Script {
        Script::choosing(settings, sizing, Victims::Lives)
    }

    pub(crate) fn choosing(settings: Settings, sizing: &str, victims: Victims) -> Script {
        Script::within(u64::MAX, settings, sizing, victims)
    }

    /// With a layout that has so many bytes of addresses.
    pub(crate) fn within(
        most_bytes: u64,
        settings: Settings,
        sizing: &str,
        victims: Victims,
    ) -> Script {
        let parts = Parts {
            layout: Box::new(Seamless::of(most_bytes)),
            sizing: sizing_by_name(sizing).unwrap(),
            admission: admission_by_name("all").unwrap(),
            victims,
        };
        let mut engine = Engine::new(settings, parts);
        let space = engine.add_space();
        Script {
            engine,
            space,
            slot: 0,
        }
    }

    pub(crate) fn fill(&mut self, first: u64, count: u64) {
        self.engine
            .filled(self.space, PageRange::new(PageNo(first), count));
        assert_eq!(self.engine.violation(), None);
    }

    /// Chooses the oldest pages.
    pub(crate) fn choose(&mut self, count: usize) -> Vec<u64> {
        let mut chosen = Vec::new();
        self.engine
            .choose_victims(&[(self.space, u32::MAX)], count, &mut chosen);
        chosen.into_iter().map(|(_, page)| page.0).collect()
    }

    pub(crate) fn take(&mut self, page: u64) -> Option<BodyId> {
        self.slot += 1;
        self.engine
            .taken(self.space, PageNo(page), StagingSlot(self.slot))
    }

    /// Folds a body into `len` bytes of `byte`.
    pub(crate) fn fold(&mut self, body: BodyId, byte: u8, len: usize) {
        assert_eq!(self.try_fold(body, byte, len), Ok(()));
    }

    /// The same, if there is room.
    pub(crate) fn try_fold(&mut self, body: BodyId, byte: u8, len: usize) -> Result<(), CacheFull> {
        let folded = Folded::Bytes { codec: CODEC, len };
        let result = self.engine.folded(body, folded, &vec![byte; len]);
        assert_eq!(self.engine.violation(), None);
        result
    }

    /// Fills `pages` pages from 0 on and stores each in `len` bytes, page 0 first.
    pub(crate) fn store(&mut self, pages: u64, len: usize) {
        self.fill(0, pages);
        for page in self.choose(pages as usize) {
            let body = self.take(page).unwrap();
            self.fold(body, page as u8, len);
        }
    }

    /// Faults on a page and fills just it.
    pub(crate) fn bring_back(&mut self, page: u64) {
        let answer = self.fault(page).0;
        assert!(
            matches!(answer, FaultAnswer::Fill | FaultAnswer::Read),
            "{answer:?}"
        );
        self.fill(page, 1);
    }

    pub(crate) fn fault(&mut self, page: u64) -> (FaultAnswer, FillPlan) {
        let mut plan = FillPlan::default();
        let answer = self.engine.fault(self.space, PageNo(page), true, &mut plan);
        (answer, plan)
    }

    pub(crate) fn plan_write(&mut self) -> Option<WritePlan> {
        let mut plan = WritePlan::default();
        self.engine.plan_write(&mut plan).then_some(plan)
    }
}

/// Which pages a plan writes: `Script::store` fills each page with its number.
pub(crate) fn pages_of(plan: &WritePlan) -> Vec<u8> {
    plan.items
        .iter()
        .map(|item| plan.bytes[item.start as usize])
        .collect()
}

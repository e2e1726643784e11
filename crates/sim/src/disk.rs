//! A device at work: one queue, first come first served, where each request ends when.
//!
//! Times are nanoseconds of the simulation. `submit` is told of requests in the order of their
//! times, give or take the little that CPUs run ahead of each other.

use serde::Serialize;

use crate::device::Device;

/// Data moves in whole sectors.
const SECTOR_BYTES: u64 = 512;
/// Data that lies so close behind the head is waited for rather than sought.
const READ_THROUGH_BYTES: u64 = 128 << 10;
/// The swap file lies at the beginning, files from here on: one part in so many of the disk.
const FILES_FROM: u64 = 4;
/// Each file begins one part in so many of the disk further on.
const FILE_SPAN: u64 = 64;

/// Where data is on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// This many bytes into the swap file.
    Swap(u64),
    /// This many bytes into a file.
    File(u32, u64),
}

/// Which way data goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the device.
    Read,
    /// To the device.
    Write,
}

/// What a device has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Traffic {
    /// Read requests.
    pub reads: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Write requests.
    pub writes: u64,
    /// Bytes written.
    pub write_bytes: u64,
    /// Requests that the head had to move for.
    pub seeks: u64,
    /// Time during which data flowed or the head moved.
    pub busy_ns: u64,
}

/// One device.
pub struct Disk {
    latency_ns: [u64; 2],
    ps_per_byte: [u64; 2],
    request_ns: u64,
    seek_ns: f64,
    track_ns: f64,
    half_turn_ns: u64,
    capacity_bytes: u64,
    /// When each place of the queue is free again.
    places: Vec<u64>,
    /// When the pipe is.
    pipe_free: u64,
    head: u64,
    /// What the head went over last without a gap: from here to where it is.
    run_start: u64,
    buffer_bytes: u64,
    traffic: Traffic,
}

impl Disk {
    /// An idle device, its head at the beginning of the swap file.
    pub fn new(device: &Device) -> Disk {
        let ns = |us: f64| (us * 1e3) as u64;
        let ps_per_byte = |mb_per_s: f64| (1e6 / mb_per_s) as u64;
        let request_ns = if device.requests_per_s > 0.0 {
            (1e9 / device.requests_per_s) as u64
        } else {
            0
        };
        Disk {
            latency_ns: [ns(device.read_latency_us), ns(device.write_latency_us)],
            ps_per_byte: [
                ps_per_byte(device.read_mb_per_s),
                ps_per_byte(device.write_mb_per_s),
            ],
            request_ns,
            seek_ns: device.seek_us * 1e3,
            track_ns: device.track_us * 1e3,
            half_turn_ns: ns(device.half_turn_us),
            capacity_bytes: (device.capacity_mb * 1e6) as u64,
            places: vec![0; device.depth as usize],
            pipe_free: 0,
            head: 0,
            run_start: 0,
            buffer_bytes: (device.buffer_kb * 1e3) as u64,
            traffic: Traffic::default(),
        }
    }

    /// A request comes at `now`; answers when it is done.
    pub fn submit(&mut self, now: u64, direction: Direction, place: Place, bytes: u64) -> u64 {
        let way = direction as usize;
        let at = self.position(place);
        let from = at - at % SECTOR_BYTES;
        let to = (at + bytes).next_multiple_of(SECTOR_BYTES);
        let flow = self.transfer_ns(way, to - from).max(self.request_ns);
        let moving = match self.buffered_to(direction, from) {
            Some(head) if to <= head => 0,
            Some(head) => self.move_over(way, head, to),
            None => self.move_over(way, from, to),
        };
        let free = self.places.iter_mut().min().expect("depth is at least 1");
        let begin = now.max(*free) + self.latency_ns[way];
        let done = begin.max(self.pipe_free) + moving + flow;
        *free = done;
        self.pipe_free = done;
        self.count(direction, bytes, moving + flow);
        done
    }

    /// What has been done so far.
    pub fn traffic(&self) -> Traffic {
        self.traffic
    }

    fn position(&self, place: Place) -> u64 {
        match place {
            Place::Swap(offset) => offset,
            Place::File(file, offset) => {
                let files = self.capacity_bytes / FILES_FROM;
                let spans = FILE_SPAN - FILE_SPAN / FILES_FROM;
                let begin = u64::from(file) % spans * (self.capacity_bytes / FILE_SPAN);
                // On a sector: neighbours would overlap otherwise, and be sought.
                (files + begin).next_multiple_of(SECTOR_BYTES) + offset
            }
        }
    }

    fn transfer_ns(&self, way: usize, bytes: u64) -> u64 {
        (u128::from(bytes) * u128::from(self.ps_per_byte[way]) / 1000) as u64
    }

    /// Up to where the device still has what is to be read, if it has its beginning: the head goes on from
    /// there.
    fn buffered_to(&self, direction: Direction, from: u64) -> Option<u64> {
        let kept = self.head.saturating_sub(self.buffer_bytes);
        let has_beginning = (self.run_start.max(kept)..self.head).contains(&from);
        (direction == Direction::Read && has_beginning).then_some(self.head)
    }

    /// The head goes there and over it: how long until it is there? No time where data follows,
    /// otherwise a seek and half a turn.
    fn move_over(&mut self, way: usize, from: u64, to: u64) -> u64 {
        let before = std::mem::replace(&mut self.head, to);
        if from == before || self.seek_ns == 0.0 {
            return 0;
        }
        let seek = self.seek_to(from.abs_diff(before)) as u64 + self.half_turn_ns;
        let ahead = from.saturating_sub(before);
        if ahead > 0 && ahead <= READ_THROUGH_BYTES {
            return self.transfer_ns(way, ahead).min(seek);
        }
        self.run_start = from;
        self.traffic.seeks += 1;
        seek
    }

    /// Arms accelerate, then brake: time grows with the root of the distance. The average seek is
    /// that over a third of the disk.
    fn seek_to(&self, distance: u64) -> f64 {
        let thirds = 3.0 * distance.min(self.capacity_bytes) as f64 / self.capacity_bytes as f64;
        self.track_ns + (self.seek_ns - self.track_ns) * thirds.sqrt()
    }

    fn count(&mut self, direction: Direction, bytes: u64, busy_ns: u64) {
        let traffic = &mut self.traffic;
        traffic.busy_ns += busy_ns;
        match direction {
            Direction::Read => {
                traffic.reads += 1;
                traffic.read_bytes += bytes;
            }
            Direction::Write => {
                traffic.writes += 1;
                traffic.write_bytes += bytes;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: u64 = 4096;
    const MS: u64 = 1_000_000;

    fn disk(name: &str) -> Disk {
        Disk::new(&Device::named(name).unwrap())
    }

    /// Reads so many pages one after the other, waiting for each.
    fn read_all(disk: &mut Disk, places: impl Iterator<Item = Place>) -> u64 {
        places.fold(0, |now, place| {
            disk.submit(now, Direction::Read, place, PAGE)
        })
    }

    #[test]
    fn sequential_reads_go_at_full_bandwidth_and_random_ones_seek() {
        let mut one = disk("hdd2003");
        let sequential = read_all(&mut one, (0..1000).map(|n| Place::Swap(n * PAGE)));
        // 4 MB at 35 MB/s, and the latency of each request.
        assert!((310 * MS..320 * MS).contains(&sequential), "{sequential}");
        assert_eq!(one.traffic().seeks, 0);
        let mut one = disk("hdd2003");
        let scattered = (0..1000u64).map(|n| Place::Swap(n * 7919 % 1000 * (20 << 20)));
        let random = read_all(&mut one, scattered);
        // Over 7 of 60 GB on average, half a turn, and the page.
        assert!((7_500 * MS..9_000 * MS).contains(&random), "{random}");
        assert!(one.traffic().seeks > 990);
    }

    #[test]
    fn a_file_that_is_read_in_order_is_sought_once() {
        for name in ["hdd", "hdd2003", "rz57", "ultra-scsi"] {
            let mut one = disk(name);
            read_all(&mut one, (0..1000).map(|n| Place::File(7, n * PAGE)));
            assert_eq!(one.traffic().seeks, 1, "{name}");
        }
    }

    #[test]
    fn a_short_way_is_quicker_than_a_long_one() {
        let (mut near, mut far) = (disk("hdd"), disk("hdd"));
        let near = near.submit(0, Direction::Read, Place::Swap(1 << 24), PAGE);
        let far = far.submit(0, Direction::Read, Place::File(9, 0), PAGE);
        assert!(near * 3 / 2 < far, "{near} {far}");
    }

    #[test]
    fn the_swap_file_and_files_are_apart() {
        let mut one = disk("hdd2003");
        let both = (0..10).flat_map(|n| [Place::Swap(n * PAGE), Place::File(0, n * PAGE)]);
        read_all(&mut one, both);
        assert_eq!(one.traffic().seeks, 19);
    }

    #[test]
    fn a_disk_serves_one_request_at_a_time_and_flash_many() {
        let done = |name: &str| {
            let mut one = disk(name);
            let done = (0..32).map(|n| one.submit(0, Direction::Read, Place::Swap(n << 30), PAGE));
            done.max().unwrap()
        };
        assert!(done("hdd") > 32 * 5 * MS);
        // All latencies at once, then 128 KiB through the pipe.
        let nvme = done("nvme");
        assert!((80_000..130_000).contains(&nvme), "{nvme}");
    }

    #[test]
    fn a_network_disk_begins_so_many_requests_a_second() {
        let mut one = disk("cloud");
        let done = (0..3000).map(|n| one.submit(0, Direction::Write, Place::Swap(n * PAGE), PAGE));
        let last = done.max().unwrap();
        assert!((1000 * MS..1100 * MS).contains(&last), "{last}");
        let large = one.submit(10_000 * MS, Direction::Read, Place::Swap(0), 125 << 20);
        assert!(large > 11_000 * MS, "{large}");
    }

    #[test]
    fn what_the_head_went_over_is_read_again_without_moving() {
        let mut one = disk("hdd2003");
        let forth = read_all(&mut one, (0..100).map(|n| Place::Swap(n * PAGE)));
        let back = read_all(&mut one, (0..100).rev().map(|n| Place::Swap(n * PAGE)));
        assert_eq!((one.traffic().seeks, back), (0, 2 * forth));
        // Not what the buffer had no room for, nor what was never read.
        let mut one = disk("hdd2003");
        one.submit(0, Direction::Read, Place::Swap(8 << 20), 4 << 20);
        for offset in [8 << 20, 7 << 20] {
            let seeks = one.traffic().seeks;
            one.submit(0, Direction::Read, Place::Swap(offset), PAGE);
            assert_eq!(one.traffic().seeks, seeks + 1);
        }
    }

    #[test]
    fn pages_that_share_a_sector_are_read_one_after_the_other() {
        let mut one = disk("ultra-scsi");
        let places = (0..1000).map(|n| n * 1100);
        places.fold(0, |now, at| {
            one.submit(now, Direction::Read, Place::Swap(at), 1100)
        });
        assert_eq!(one.traffic().seeks, 0);
    }

    #[test]
    fn everything_is_counted() {
        let mut one = disk("nvme");
        one.submit(0, Direction::Read, Place::Swap(0), 1000);
        one.submit(0, Direction::Write, Place::Swap(0), 3000);
        let traffic = one.traffic();
        assert_eq!((traffic.reads, traffic.read_bytes), (1, 1000));
        assert_eq!((traffic.writes, traffic.write_bytes), (1, 3000));
        assert!(traffic.busy_ns >= 1333, "{traffic:?}");
    }
}

//! What a backing store can do, as figures: named ones and ones from a file.
//!
//! Data and its checks only; `disk.rs` is such a device at work.

use serde::{Deserialize, Serialize};

/// The figures of a device. A request waits for a free place of `depth`, then for its latency and,
/// where data does not follow the last request's, for the head; its data then flows through one
/// pipe that all requests share.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Device {
    /// From the submission of a read until data flows, in microseconds; without positioning.
    pub read_latency_us: f64,
    /// The same of a write.
    pub write_latency_us: f64,
    /// Million bytes a second.
    pub read_mb_per_s: f64,
    /// Million bytes a second.
    pub write_mb_per_s: f64,
    /// Requests served at once.
    #[serde(default = "one")]
    pub depth: u32,
    /// Requests begun in a second at most; 0: as many as come.
    #[serde(default)]
    pub requests_per_s: f64,
    /// Average seek in microseconds, that is over a third of the disk; 0: no head.
    #[serde(default)]
    pub seek_us: f64,
    /// Seek to the next track in microseconds.
    #[serde(default)]
    pub track_us: f64,
    /// Half a turn in microseconds, waited for after each seek.
    #[serde(default)]
    pub half_turn_us: f64,
    /// What the head went over last is kept by the device, so many thousand bytes of it, and is read
    /// again without moving.
    #[serde(default)]
    pub buffer_kb: f64,
    /// Size in million bytes: how far away the other end is.
    #[serde(default = "thousand")]
    pub capacity_mb: f64,
}

fn one() -> u32 {
    1
}

fn thousand() -> f64 {
    1000.0
}

/// A named device and what it is.
struct Named {
    name: &'static str,
    about: &'static str,
    device: Device,
}

/// A disk with a head.
const fn spinning(
    latency_us: f64,
    mb_per_s: f64,
    (seek_us, track_us, half_turn_us): (f64, f64, f64),
    (buffer_kb, capacity_mb): (f64, f64),
) -> Device {
    Device {
        read_latency_us: latency_us,
        write_latency_us: latency_us,
        read_mb_per_s: mb_per_s,
        write_mb_per_s: mb_per_s,
        depth: 1,
        requests_per_s: 0.0,
        seek_us,
        track_us,
        half_turn_us,
        buffer_kb,
        capacity_mb,
    }
}

const DEVICES: [Named; 6] = [
    Named {
        name: "hdd2003",
        about: "castro03's: 60 GB IDE disk, UltraDMA 100, 7200 rpm, 35 MB/s",
        device: spinning(200.0, 35.0, (8500.0, 1200.0, 4170.0), (2e3, 60e3)),
    },
    Named {
        name: "hdd",
        about: "4 TB SATA disk of today, 7200 rpm, 200 MB/s",
        device: spinning(100.0, 200.0, (8500.0, 700.0, 4170.0), (128e3, 4e6)),
    },
    Named {
        name: "cloud",
        about: "network disk: 0.7 ms, 3000 requests and 125 MB a second",
        device: Device {
            read_latency_us: 700.0,
            write_latency_us: 700.0,
            read_mb_per_s: 125.0,
            write_mb_per_s: 125.0,
            depth: 64,
            requests_per_s: 3000.0,
            seek_us: 0.0,
            track_us: 0.0,
            half_turn_us: 0.0,
            buffer_kb: 0.0,
            capacity_mb: 100e3,
        },
    },
    Named {
        name: "nvme",
        about: "solid state: reads 80 us, writes 20 us, 3 GB/s, 32 at once",
        device: Device {
            read_latency_us: 80.0,
            write_latency_us: 20.0,
            read_mb_per_s: 3000.0,
            write_mb_per_s: 3000.0,
            depth: 32,
            requests_per_s: 0.0,
            seek_us: 0.0,
            track_us: 0.0,
            half_turn_us: 0.0,
            buffer_kb: 0.0,
            capacity_mb: 1e6,
        },
    },
    Named {
        name: "rz57",
        about: "douglis93's: 1 GB SCSI disk, 3600 rpm, 1.8 MB/s",
        device: spinning(1000.0, 1.8, (14_500.0, 4000.0, 8300.0), (64.0, 1000.0)),
    },
    Named {
        name: "ultra-scsi",
        about: "cervera99's: Ultra-SCSI disk of 1998, 7200 rpm, 12 MB/s",
        device: spinning(500.0, 12.0, (8700.0, 1000.0, 4170.0), (512.0, 9000.0)),
    },
];

/// Name and description of every device.
pub fn devices() -> impl Iterator<Item = (&'static str, &'static str)> {
    DEVICES.iter().map(|named| (named.name, named.about))
}

impl Device {
    /// How long reading so many bytes takes that lie somewhere near what was read last, when nothing
    /// else is going on: a seek over a hundredth of the device takes a tenth of the average one.
    pub fn read_ns(&self, bytes: u64) -> u64 {
        let seek_us = self.track_us.max(self.seek_us / 10.0).min(self.seek_us);
        let flow_us = bytes as f64 / self.read_mb_per_s;
        ((self.read_latency_us + seek_us + self.half_turn_us + flow_us) * 1e3) as u64
    }

    /// The device of that name.
    ///
    /// # Errors
    /// A message that lists the names.
    pub fn named(name: &str) -> Result<Device, String> {
        let found = DEVICES.iter().find(|named| named.name == name);
        found.map(|named| named.device.clone()).ok_or_else(|| {
            let names: Vec<&str> = devices().map(|(name, _)| name).collect();
            format!(
                "there is no device '{name}': choose from {}, or name a file FILE.toml",
                names.join(", ")
            )
        })
    }

    /// A device from the text of a TOML file with the fields of [`Device`].
    ///
    /// # Errors
    /// A message that names the wrong field.
    pub fn from_toml(text: &str) -> Result<Device, String> {
        let device: Device = toml::from_str(text).map_err(|error| {
            let what = error.message().replace('\n', " ");
            format!("{what} (see 'pleat sim --help' for an example)")
        })?;
        device.check()?;
        Ok(device)
    }

    fn check(&self) -> Result<(), String> {
        let times = [
            ("read_latency_us", self.read_latency_us),
            ("write_latency_us", self.write_latency_us),
            ("seek_us", self.seek_us),
            ("track_us", self.track_us),
            ("half_turn_us", self.half_turn_us),
            ("buffer_kb", self.buffer_kb),
            ("requests_per_s", self.requests_per_s),
        ];
        let speeds = [
            ("read_mb_per_s", self.read_mb_per_s),
            ("write_mb_per_s", self.write_mb_per_s),
            ("capacity_mb", self.capacity_mb),
        ];
        for (name, value) in times {
            // An hour is longer than any device takes, and sums of such times fit 64 bits.
            if !(0.0..=3.6e9).contains(&value) {
                return Err(format!("{name} = {value}: give a number from 0 to 3.6e9"));
            }
        }
        for (name, value) in speeds {
            if !(1e-3..=1e9).contains(&value) {
                return Err(format!("{name} = {value}: give a number from 0.001 to 1e9"));
            }
        }
        if !(1..=1024).contains(&self.depth) {
            return Err(format!("depth = {}: give 1 to 1024", self.depth));
        }
        if self.track_us > self.seek_us {
            return Err("track_us is more than seek_us: the next track is nearest".into());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_listed_device_exists_and_is_sane() {
        for (name, about) in devices() {
            assert!(!about.is_empty());
            assert_eq!(Device::named(name).unwrap().check(), Ok(()), "{name}");
        }
    }

    #[test]
    fn an_unknown_name_is_answered_with_the_list() {
        let error = Device::named("tape").unwrap_err();
        assert!(
            error.contains("hdd2003") && error.contains("nvme"),
            "{error}"
        );
    }

    #[test]
    fn a_device_comes_back_from_its_own_toml() {
        for (name, _) in devices() {
            let device = Device::named(name).unwrap();
            let text = toml::to_string(&device).unwrap();
            assert_eq!(Device::from_toml(&text), Ok(device));
        }
    }

    #[test]
    fn a_device_without_a_head_needs_four_figures() {
        let text = "read_latency_us = 5\nwrite_latency_us = 5\nread_mb_per_s = 9e3\n\
                    write_mb_per_s = 9e3\n";
        let device = Device::from_toml(text).unwrap();
        assert_eq!((device.depth, device.seek_us), (1, 0.0));
    }

    #[test]
    fn nonsense_is_refused_by_field() {
        let good = toml::to_string(&Device::named("nvme").unwrap()).unwrap();
        for (from, to, expected) in [
            ("depth = 32", "depth = 0", "depth"),
            (
                "read_mb_per_s = 3000.0",
                "read_mb_per_s = 0",
                "read_mb_per_s",
            ),
            ("seek_us = 0.0", "seek_us = nan", "seek_us"),
            ("track_us = 0.0", "track_us = 1", "track_us"),
            ("depth = 32", "queue = 32", "queue"),
        ] {
            assert!(good.contains(from), "{good}");
            let error = Device::from_toml(&good.replace(from, to)).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }
}

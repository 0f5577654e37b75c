//! The status of a file, as the file system reports it, and when it can be trusted.

use rustix::fs::{FileType, Stat};

use super::fact::Kind;

/// A moment on the clock with which the kernel stamps files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Stamp {
    pub seconds: i64,
    pub nanoseconds: u32,
}

/// The status of a file. A write after a given moment changes it, if that moment is later than `changed`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Status {
    pub device: u64,
    pub inode: u64,
    pub size: u64,
    pub mode: u32,
    pub links: u64,
    /// When the content was written. The file's owner can set this time.
    pub written: Stamp,
    /// When anything of the file changed, according to the kernel.
    pub changed: Stamp,
}

impl Stamp {
    /// The present, by the coarse clock, like the stamps of files. A write from now on has no earlier stamp.
    pub fn now() -> Stamp {
        Stamp::of_clock(libc::CLOCK_REALTIME_COARSE)
    }

    fn of_clock(clock: libc::clockid_t) -> Stamp {
        let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: the kernel writes to what is ours.
        unsafe { libc::clock_gettime(clock, &mut now) };
        #[allow(clippy::unnecessary_cast)] // another size elsewhere
        Stamp {
            seconds: now.tv_sec as i64,
            nanoseconds: now.tv_nsec as u32,
        }
    }

    /// Waits until all earlier stamps are in the past.
    pub fn wait_for_next() {
        // Since Linux 6.13, a file whose status was read is stamped by the fine clock, which is ahead of the coarse one.
        let start = Stamp::of_clock(libc::CLOCK_REALTIME);
        // If the clock is set back meanwhile, the wait still ends.
        for _ in 0..50 {
            if Stamp::now() > start {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    }

    /// Earlier than a moment of the clock, even if the file system keeps whole seconds only.
    pub fn is_before(self, moment: Stamp) -> bool {
        if self.nanoseconds == 0 {
            self.seconds < moment.seconds
        } else {
            self < moment
        }
    }

    pub fn plus_seconds(self, seconds: i64) -> Stamp {
        Stamp {
            seconds: self.seconds.saturating_add(seconds),
            ..self
        }
    }
}

impl Status {
    /// Whether the file was left alone from this moment on. The time of the content does not count: it can be set to any
    /// value, but not without a change of the other one.
    pub fn is_older(&self, moment: Stamp) -> bool {
        self.changed.is_before(moment)
    }

    /// The file's identity; see `Access::identity`.
    pub fn identity(&self) -> u64 {
        crate::observe::access::identity(self.device, self.inode)
    }

    pub fn kind(&self) -> Kind {
        match FileType::from_raw_mode(self.mode) {
            FileType::RegularFile if self.mode & 0o111 != 0 => Kind::Program,
            FileType::RegularFile => Kind::File,
            FileType::Directory => Kind::Folder,
            FileType::Symlink => Kind::Link,
            _ => Kind::Other,
        }
    }
}

impl From<Stat> for Status {
    #[allow(clippy::unnecessary_cast)] // other sizes elsewhere
    fn from(stat: Stat) -> Status {
        Status {
            device: stat.st_dev as u64,
            inode: stat.st_ino as u64,
            size: stat.st_size as u64,
            mode: stat.st_mode as u32,
            links: stat.st_nlink as u64,
            written: Stamp {
                seconds: stat.st_mtime as i64,
                nanoseconds: stat.st_mtime_nsec as u32,
            },
            changed: Stamp {
                seconds: stat.st_ctime as i64,
                nanoseconds: stat.st_ctime_nsec as u32,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stamp_of_whole_seconds_may_be_from_anywhere_in_its_second() {
        let stamp = |seconds, nanoseconds| Stamp { seconds, nanoseconds };
        assert!(stamp(5, 1).is_before(stamp(5, 2)));
        assert!(!stamp(5, 2).is_before(stamp(5, 2)));
        assert!(!stamp(5, 0).is_before(stamp(5, 2)));
        assert!(stamp(4, 0).is_before(stamp(5, 0)));
    }
}

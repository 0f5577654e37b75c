//! A temporary folder for a unit test. It is removed at the end of the test.

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

pub struct TestFolder(pub PathBuf);

impl TestFolder {
    pub fn new() -> TestFolder {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("cache-test-{}-{number}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        TestFolder(fs::canonicalize(path).unwrap())
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for TestFolder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

//! Whether a program is parked, as a trial has shown. Verdicts are kept for the next engine.

use std::fs;
use std::io;
use std::path::Path;

use serde_json::{json, Value};

use super::program::Program;

use crate::files::regular;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    path: String,
    /// Device, inode, size, and the two times as seconds and nanoseconds.
    identity: [i64; 7],
    pub admitted: bool,
    pub words: String,
    /// The digest of what it had loaded.
    pub parts: u64,
    /// Whether the verdict is about the program, and not only about the moment.
    pub is_lasting: bool,
    /// Whether it depends on times only: another trial may have another result.
    pub is_open: bool,
}

impl Verdict {
    pub fn admitted(program: &Program, words: impl Into<String>, parts: u64) -> Verdict {
        Verdict {
            admitted: true,
            parts,
            is_lasting: true,
            ..Verdict::refused(program, words)
        }
    }

    pub fn refused(program: &Program, words: impl Into<String>) -> Verdict {
        Verdict {
            path: program.path.to_string_lossy().into_owned(),
            identity: numbers(program),
            admitted: false,
            words: words.into(),
            parts: 0,
            is_lasting: false,
            is_open: false,
        }
    }

    pub fn lasting(self) -> Verdict {
        Verdict {
            is_lasting: true,
            ..self
        }
    }

    pub fn open(self) -> Verdict {
        Verdict { is_open: true, ..self }
    }

    pub fn is_of(&self, program: &Program) -> bool {
        self.identity == numbers(program) && self.has_path(program)
    }

    pub fn has_path(&self, program: &Program) -> bool {
        self.path == program.path.to_string_lossy()
    }

    fn to_json(&self) -> Value {
        json!({
            "path": self.path,
            "identity": self.identity,
            "admitted": self.admitted,
            "words": self.words,
            "parts": self.parts,
            "open": self.is_open,
        })
    }

    fn from_json(value: &Value) -> Option<Verdict> {
        let identity: Option<Vec<i64>> = value["identity"].as_array()?.iter().map(Value::as_i64).collect();
        Some(Verdict {
            path: value["path"].as_str()?.to_owned(),
            identity: identity?.try_into().ok()?,
            admitted: value["admitted"].as_bool()?,
            words: value["words"].as_str()?.to_owned(),
            parts: value["parts"].as_u64()?,
            is_lasting: true,
            is_open: value["open"].as_bool()?,
        })
    }
}

fn numbers(program: &Program) -> [i64; 7] {
    let id = &program.identity;
    let (device, inode) = (id.device as i64, id.inode as i64);
    [
        device,
        inode,
        id.size,
        id.modified.0,
        id.modified.1,
        id.changed.0,
        id.changed.1,
    ]
}

/// The verdicts of earlier engines. Empty if the file is not there, or not understood.
pub fn load(path: &Path) -> Vec<Verdict> {
    let text = regular::read_to_string(path).unwrap_or_default();
    let list: Value = serde_json::from_str(&text).unwrap_or_default();
    list.as_array()
        .into_iter()
        .flatten()
        .filter_map(Verdict::from_json)
        .collect()
}

pub fn save(path: &Path, verdicts: &[Verdict]) -> io::Result<()> {
    let list: Vec<_> = verdicts.iter().map(Verdict::to_json).collect();
    let fresh = path.with_extension("verdicts.new");
    // A killed engine, or somebody else, may have left a file with this name.
    let _ = fs::remove_file(&fresh);
    fs::write(&fresh, serde_json::to_string(&list).unwrap_or_default())?;
    fs::rename(&fresh, path)
}

//! Decodes values. Every field must end within its frame, and everything that `docs/protocol.md` does not allow is
//! refused.
//!
//! Does not know in which order frames may come.

use super::{
    Caching, Elsewhere, Execute, Form, Hello, Malformed, MissReason, Outcome, Policy, Reply, Request, Size, Stdio,
    Step, Strings, Told, UncachedReason, Unkept, UnstoredReason, Verdict, Why, ENVIRONMENTS, INPUT_CAP, MAGIC,
};
use crate::bytes::fields::Reader;

type Result<T> = std::result::Result<T, Malformed>;

const UNKNOWN_REASON: Malformed = Malformed("unknown reason");

/// Fields that only this protocol has.
impl Reader<'_> {
    fn strings(&mut self) -> Result<Strings> {
        let count = self.u32()? as usize;
        let n = self.u32()? as usize;
        let bytes = self.take(n)?;
        let zeros = bytes.iter().filter(|b| **b == 0).count();
        if zeros != count || bytes.last().is_some_and(|b| *b != 0) {
            return Err(Malformed("the count of strings does not match"));
        }
        Ok(Strings { bytes: bytes.to_vec() })
    }

    fn numbers(&mut self) -> Result<Vec<u32>> {
        let count = self.u32()? as usize;
        let bytes = self.take(count.saturating_mul(4))?;
        let number = |bytes: &[u8]| bytes.iter().rev().fold(0, |sum, byte| sum << 8 | u32::from(*byte));
        Ok(bytes.chunks_exact(4).map(number).collect())
    }

    /// A text for users.
    fn words(&mut self) -> Result<String> {
        String::from_utf8(self.text()?.to_vec()).map_err(|_| Malformed("words that are not UTF-8"))
    }

    fn env(&mut self) -> Result<u32> {
        match self.u32()? {
            env if (env as usize) < ENVIRONMENTS => Ok(env),
            _ => Err(Malformed("the environment's number is above 63")),
        }
    }

    fn stdio(&mut self, stream: usize) -> Result<Stdio> {
        match self.u8()? {
            0 => Ok(Stdio::Null),
            1 => Ok(Stdio::Pipe),
            2 => Ok(Stdio::Descriptor),
            3 if stream == 2 => Ok(Stdio::SameAsStdout),
            _ => Err(Malformed("unknown kind of standard stream")),
        }
    }
}

fn hello(r: &mut Reader<'_>) -> Result<Hello> {
    let (lowest, highest) = r.versions(MAGIC)?;
    Ok(Hello {
        lowest,
        highest,
        session: r.array()?,
        jobs: r.u32()?,
        wishes: r.u32()?,
        pid: r.u32()?,
        token: r.text()?.to_vec(),
        name: r.text()?.to_vec(),
    })
}

fn environment(r: &mut Reader<'_>) -> Result<Request> {
    let env = r.env()?;
    let entries = r.strings()?;
    if entries.iter().any(|entry| !entry.contains(&b'=')) {
        return Err(Malformed("an entry of an environment is not KEY=VALUE"));
    }
    Ok(Request::Environment { env, entries })
}

fn execute(r: &mut Reader<'_>) -> Result<Execute> {
    let id = r.u32()?;
    let env = r.env()?;
    let flags = r.u8()?;
    if flags > 31 {
        return Err(Malformed("unknown flags"));
    }
    let mut command = Execute {
        id,
        env,
        new_session: flags & 1 != 0,
        cached: flags & 2 != 0,
        by_facts: flags & 4 != 0,
        inputs: flags & 8 != 0,
        stdio: [r.stdio(0)?, r.stdio(1)?, r.stdio(2)?],
        timeout: r.u64()?,
        cwd: r.text()?.to_vec(),
        argv: r.strings()?,
        input: r.text()?.to_vec(),
        outputs: Strings::default(),
    };
    if flags & 16 != 0 {
        command.outputs = r.strings()?;
        if command.outputs.is_empty() || command.outputs.iter().any(<[u8]>::is_empty) {
            return Err(Malformed("a declared output without a name"));
        }
    }
    if !command.cwd.starts_with(b"/") || command.cwd.contains(&0) {
        return Err(Malformed("the folder is not an absolute path"));
    }
    if command.argv.is_empty() {
        return Err(Malformed("a command has at least a name"));
    }
    if command.input.len() > INPUT_CAP {
        return Err(Malformed("the input is above 1 MiB"));
    }
    if !command.input.is_empty() && command.stdio[0] != Stdio::Pipe {
        return Err(Malformed("input without a pipe"));
    }
    Ok(command)
}

fn caching(r: &mut Reader<'_>) -> Result<Caching> {
    let flags = r.u8()?;
    if flags > 63 {
        return Err(Malformed("unknown flags"));
    }
    let size = Size {
        columns: r.u16()?,
        rows: r.u16()?,
    };
    let bases = r.strings()?;
    if bases.iter().any(|base| !base.starts_with(b"/")) {
        return Err(Malformed("a base folder is not an absolute path"));
    }
    let (namespace, store) = (r.text()?.to_vec(), r.text()?.to_vec());
    if !store.is_empty() && !store.starts_with(b"/") {
        return Err(Malformed("the store is not an absolute path"));
    }
    let export = match flags & 16 != 0 {
        true => Some(r.text()?.to_vec()),
        false => None,
    };
    if export
        .as_ref()
        .is_some_and(|folder| !folder.starts_with(b"/") || folder.contains(&0))
    {
        return Err(Malformed("the folder for entries is not an absolute path"));
    }
    let remote = match flags & 32 != 0 {
        true => Some(r.text()?.to_vec()),
        false => None,
    };
    if remote.as_ref().is_some_and(|names| std::str::from_utf8(names).is_err()) {
        return Err(Malformed("the shared stores are not UTF-8"));
    }
    Ok(Caching {
        read_only: flags & 1 != 0,
        recache: flags & 2 != 0,
        share_checkouts: flags & 8 != 0,
        bases,
        namespace,
        store,
        export,
        remote,
        terminal: (flags & 4 != 0).then_some(size),
    })
}

fn policy(r: &mut Reader<'_>) -> Result<Policy> {
    let flags = r.u8()?;
    if flags > 31 {
        return Err(Malformed("unknown flags"));
    }
    let serve = match flags >> 2 & 3 {
        0 => None,
        1 => Some(Form::Pipe),
        2 => Some(Form::Fifo),
        _ => return Err(Malformed("two forms of a jobserver")),
    };
    Ok(Policy {
        no_brake: flags & 1 != 0,
        tokens: flags & 2 != 0,
        serve,
        load: r.u32()?,
        memory: (flags & 16 != 0).then(|| r.u64()).transpose()?,
    })
}

impl Request {
    /// Decodes a frame without its length.
    pub fn decode(frame: &[u8]) -> Result<Request> {
        let mut r = Reader(frame);
        let request = match r.u8()? {
            0x01 => Request::Hello(hello(&mut r)?),
            0x02 => environment(&mut r)?,
            0x03 => Request::Execute(Box::new(execute(&mut r)?)),
            0x04 => Request::Cancel { id: r.u32()? },
            0x05 => Request::Status,
            0x06 => match r.u8()? {
                how @ 0..=1 => Request::Stop { now: how == 1 },
                _ => return Err(Malformed("unknown way to stop")),
            },
            0x07 => Request::Listen,
            0x08 => Request::Policy(policy(&mut r)?),
            0x09 => Request::Cache {
                question: r.text()?.to_vec(),
            },
            0x0a => Request::Caching(caching(&mut r)?),
            _ => return Err(Malformed("unknown kind of request")),
        };
        r.end()?;
        Ok(request)
    }
}

const VERDICTS: [Verdict; 4] = [Verdict::Ran, Verdict::NotStarted, Verdict::TimedOut, Verdict::Cancelled];
const STEPS: [Step; 5] = [Step::None, Step::Command, Step::Folder, Step::Engine, Step::Parked];

fn outcome(r: &mut Reader<'_>) -> Result<Outcome> {
    Ok(Outcome {
        id: r.u32()?,
        verdict: r.one_of(&VERDICTS, |one| one as u8, "unknown verdict")?,
        step: r.one_of(&STEPS, |one| one as u8, "unknown step")?,
        code: r.i32()?,
        queued: r.u64()?,
        wall: r.u64()?,
        user: r.u64()?,
        system: r.u64()?,
        peak: r.u64()?,
    })
}

fn told(r: &mut Reader<'_>) -> Result<Told> {
    match r.u8()? {
        0 => Ok(Told::Uncached {
            why: UncachedReason::from_number(r.u8()?).ok_or(UNKNOWN_REASON)?,
            words: r.words()?,
        }),
        1 => Ok(Told::Hit { processor: r.u64()? }),
        2 => Ok(Told::Miss {
            why: MissReason::from_number(r.u8()?).ok_or(UNKNOWN_REASON)?,
            words: r.words()?,
            unstored: unstored(r)?,
            saved: r.u64()?,
        }),
        _ => Err(Malformed("unknown answer of the cache")),
    }
}

fn unstored(r: &mut Reader<'_>) -> Result<Option<Unkept>> {
    let number = r.u8()?;
    let words = r.words()?;
    match UnstoredReason::from_number(number) {
        Some(why) => Ok(Some(Unkept { why, words })),
        None if number == 0 && words.is_empty() => Ok(None),
        None => Err(UNKNOWN_REASON),
    }
}

impl Reply {
    pub fn decode(frame: &[u8]) -> Result<Reply> {
        let mut r = Reader(frame);
        let reply = match r.u8()? {
            0x81 => Reply::Welcome {
                version: r.u16()?,
                pid: r.u32()?,
                slots: r.u32()?,
                engine: r.text()?.to_vec(),
            },
            0x82 => Reply::Refused {
                why: Why::from_number(r.u8()?).ok_or(Malformed("unknown reason to refuse"))?,
                reason: r.text()?.to_vec(),
            },
            0x83 => Reply::Output {
                id: r.u32()?,
                stream: match r.u8()? {
                    stream @ 1..=2 => stream,
                    _ => return Err(Malformed("unknown stream")),
                },
                data: r.text()?.to_vec(),
            },
            0x84 => Reply::Outcome(outcome(&mut r)?),
            0x85 => Reply::Report {
                json: r.text()?.to_vec(),
            },
            0x86 => Reply::Listening { port: r.u16()? },
            0x87 => Reply::Told {
                id: r.u32()?,
                told: told(&mut r)?,
            },
            0x88 => Reply::Inputs {
                id: r.u32()?,
                first: r.u32()?,
                new: r.strings()?,
                result: r.array()?,
                numbers: r.numbers()?,
            },
            0x89 => Reply::Elsewhere {
                id: r.u32()?,
                elsewhere: Elsewhere {
                    after: r.u64()?,
                    there: r.u64()?,
                    here: r.u64()?,
                    address: r.words()?,
                    words: r.words()?,
                },
            },
            _ => return Err(Malformed("unknown kind of reply")),
        };
        r.end()?;
        Ok(reply)
    }
}

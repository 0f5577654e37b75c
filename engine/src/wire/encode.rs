//! Encodes values as bytes, appended to a buffer.
//!
//! Does not check the size limits of frames. The sender checks the length.

use super::{Form, Reply, Request, Strings, Told, MAGIC};
use crate::bytes::fields::{put_frame as frame, put_numbered, put_text};

fn put_strings(out: &mut Vec<u8>, strings: &Strings) {
    out.extend((strings.len() as u32).to_le_bytes());
    put_text(out, &strings.bytes);
}

fn put_told(out: &mut Vec<u8>, told: &Told) {
    out.push(told.known() as u8);
    match told {
        Told::Hit { processor } => out.extend(processor.to_le_bytes()),
        Told::Uncached { why, words } => {
            out.push(*why as u8);
            put_text(out, words.as_bytes());
        }
        Told::Miss {
            why,
            words,
            unstored,
            saved,
        } => {
            out.push(*why as u8);
            put_text(out, words.as_bytes());
            out.push(unstored.as_ref().map_or(0, |unstored| unstored.why as u8));
            put_text(out, unstored.as_ref().map_or("", |unstored| &unstored.words).as_bytes());
            out.extend(saved.to_le_bytes());
        }
    }
}

impl Request {
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Request::Hello(h) => frame(out, 0x01, |out| {
                out.extend(MAGIC);
                out.extend(h.lowest.to_le_bytes());
                out.extend(h.highest.to_le_bytes());
                out.extend(h.session);
                for number in [h.jobs, h.wishes, h.pid] {
                    out.extend(number.to_le_bytes());
                }
                put_text(out, &h.token);
                put_text(out, &h.name);
            }),
            Request::Environment { env, entries } => put_numbered(out, 0x02, *env, |out| put_strings(out, entries)),
            Request::Execute(command) => put_numbered(out, 0x03, command.id, |out| {
                out.extend(command.env.to_le_bytes());
                let declares = !command.outputs.is_empty();
                let flags = [
                    command.new_session,
                    command.cached,
                    command.by_facts,
                    command.inputs,
                    declares,
                ];
                out.push((0..).zip(flags).map(|(bit, flag)| u8::from(flag) << bit).sum());
                out.extend(command.stdio.map(|stdio| stdio as u8));
                out.extend(command.timeout.to_le_bytes());
                put_text(out, &command.cwd);
                put_strings(out, &command.argv);
                put_text(out, &command.input);
                if declares {
                    put_strings(out, &command.outputs);
                }
            }),
            Request::Cancel { id } => put_numbered(out, 0x04, *id, |_| ()),
            Request::Status => frame(out, 0x05, |_| ()),
            Request::Stop { now } => frame(out, 0x06, |out| out.push((*now).into())),
            Request::Listen => frame(out, 0x07, |_| ()),
            Request::Policy(policy) => frame(out, 0x08, |out| {
                let serve = match policy.serve {
                    None => 0,
                    Some(Form::Pipe) => 4,
                    Some(Form::Fifo) => 8,
                };
                let memory = u8::from(policy.memory.is_some()) << 4;
                out.push(u8::from(policy.no_brake) | u8::from(policy.tokens) << 1 | serve | memory);
                out.extend(policy.load.to_le_bytes());
                out.extend(policy.memory.iter().flat_map(|bytes| bytes.to_le_bytes()));
            }),
            Request::Cache { question } => frame(out, 0x09, |out| put_text(out, question)),
            Request::Caching(caching) => frame(out, 0x0a, |out| {
                let shared = u8::from(caching.share_checkouts) << 3;
                let terminal = u8::from(caching.terminal.is_some()) << 2;
                let exports = u8::from(caching.export.is_some()) << 4;
                let remote = u8::from(caching.remote.is_some()) << 5;
                let switches = u8::from(caching.read_only) | u8::from(caching.recache) << 1;
                out.push(switches | terminal | shared | exports | remote);
                let size = caching.terminal.unwrap_or_default();
                out.extend(size.columns.to_le_bytes());
                out.extend(size.rows.to_le_bytes());
                put_strings(out, &caching.bases);
                put_text(out, &caching.namespace);
                put_text(out, &caching.store);
                [&caching.export, &caching.remote]
                    .into_iter()
                    .flatten()
                    .for_each(|text| put_text(out, text));
            }),
        }
    }
}

impl Reply {
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Reply::Welcome {
                version,
                pid,
                slots,
                engine,
            } => frame(out, 0x81, |out| {
                out.extend(version.to_le_bytes());
                out.extend(pid.to_le_bytes());
                out.extend(slots.to_le_bytes());
                put_text(out, engine);
            }),
            Reply::Refused { why, reason } => frame(out, 0x82, |out| {
                out.push(*why as u8);
                put_text(out, reason);
            }),
            Reply::Output { id, stream, data } => put_output(out, *id, *stream, data),
            Reply::Outcome(o) => put_numbered(out, 0x84, o.id, |out| {
                out.extend([o.verdict as u8, o.step as u8]);
                out.extend(o.code.to_le_bytes());
                for number in [o.queued, o.wall, o.user, o.system, o.peak] {
                    out.extend(number.to_le_bytes());
                }
            }),
            Reply::Report { json } => frame(out, 0x85, |out| put_text(out, json)),
            Reply::Listening { port } => frame(out, 0x86, |out| out.extend(port.to_le_bytes())),
            Reply::Told { id, told } => put_numbered(out, 0x87, *id, |out| {
                put_told(out, told);
            }),
            Reply::Inputs {
                id,
                first,
                new,
                result,
                numbers,
            } => put_numbered(out, 0x88, *id, |out| {
                out.extend(first.to_le_bytes());
                put_strings(out, new);
                out.extend(result);
                out.extend((numbers.len() as u32).to_le_bytes());
                numbers.iter().for_each(|number| out.extend(number.to_le_bytes()));
            }),
            Reply::Elsewhere { id, elsewhere } => put_numbered(out, 0x89, *id, |out| {
                for time in [elsewhere.after, elsewhere.there, elsewhere.here] {
                    out.extend(time.to_le_bytes());
                }
                put_text(out, elsewhere.address.as_bytes());
                put_text(out, elsewhere.words.as_bytes());
            }),
        }
    }
}

/// Encodes an `output` frame from borrowed bytes, so that captured output is copied only once.
pub fn put_output(out: &mut Vec<u8>, id: u32, stream: u8, data: &[u8]) {
    put_numbered(out, 0x83, id, |out| {
        out.push(stream);
        put_text(out, data);
    });
}

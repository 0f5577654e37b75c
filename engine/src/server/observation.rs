//! Prepares the observation of commands: the trace region, and the command line and environment that write to it.

use std::ffi::{CStr, CString, OsString};
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::sync::OnceLock;

use super::command::{Order, Recording};
use super::starters::{TraceSetup, Work};
use crate::cache::rerun::{Apart, Call};
use crate::facts::status::Stamp;
use crate::observe::access::Bytes;
use crate::observe::known_programs::makes_own_calls;
use crate::observe::trace::program::is_static;
use crate::observe::trace::{Arena, TraceRegion};
use crate::park::program::Program;
use crate::park::Parking;
use crate::process::apart::Plan;
use crate::process::context::Context;
use crate::process::spawn;
use crate::wire::{Stdio, Strings, UnstoredReason};
use crate::witness;

/// Prepares the observation of a command, if its result is to be stored.
pub(super) fn observe(recording: &mut Recording, order: &Order, parking: &Parking) -> Option<TraceSetup> {
    recording.ticket.as_ref()?;
    if order.execute.stdio[1..] != [Stdio::Pipe, Stdio::Pipe] {
        recording.give_up(UnstoredReason::PrintsElsewhere);
        return None;
    }
    let (Some(arena), Some(library)) = (parking.arena(), parking.library()) else {
        recording.give_up(UnstoredReason::CannotBeObserved);
        return None;
    };
    let Some(mut trace_region) = arena.reserve() else {
        recording.give_up(UnstoredReason::TooManyAtOnce);
        return None;
    };
    let (program, trace) = note_in(&trace_region, library, order.into(), (&order.execute.argv, &order.env));
    trace_region.expect(program);
    recording.trace_region = Some(trace_region);
    recording.started = Stamp::now();
    Some(trace)
}

/// The same for the next part of a command. A driver that is told how its parts ended is not observed.
pub(super) fn observe_next(
    recording: &mut Recording,
    order: &Order,
    work: &Work,
    parking: &Parking,
) -> Option<TraceSetup> {
    let trace_region = recording.trace_region.as_mut()?;
    trace_region.mark();
    match work {
        Work::Part(part) => {
            let (program, trace) = note_in(trace_region, parking.library()?, order.into(), (&part.argv, &part.env));
            trace_region.expect(program);
            Some(trace)
        }
        Work::Command | Work::Driver(_) => None,
    }
}

/// Where a program runs.
struct Surroundings<'a> {
    folder: &'a [u8],
    context: &'a Context,
}

impl<'a> From<&'a Order> for Surroundings<'a> {
    fn from(order: &'a Order) -> Surroundings<'a> {
        Surroundings {
            folder: &order.execute.cwd,
            context: &order.context,
        }
    }
}

/// What commands need to be observed that are no client's.
#[derive(Clone)]
pub struct Observer {
    arena: Arena,
    library: CString,
}

impl Observer {
    pub(super) fn of(parking: &Parking) -> Option<Observer> {
        let (arena, library) = (parking.arena()?.clone(), parking.library()?.to_owned());
        Some(Observer { arena, library })
    }

    /// The path of the library that observes.
    pub(super) fn path(&self) -> Bytes {
        self.library.to_bytes().to_vec()
    }

    /// Prepares the observation of a command in a folder.
    pub(super) fn observe(
        &self,
        argv: &Strings,
        env: &Strings,
        folder: &[u8],
        context: &Context,
    ) -> Option<(TraceRegion, TraceSetup)> {
        let mut trace_region = self.arena.reserve()?;
        let surroundings = Surroundings { folder, context };
        let (program, trace) = note_in(&trace_region, &self.library, surroundings, (argv, env));
        trace_region.expect(program);
        Some((trace_region, trace))
    }

    /// The same for a command that is run apart: its command line is the one that does so. The list of what it leaves is in
    /// `at`.
    pub(super) fn observe_apart(
        &self,
        call: &Call,
        apart: &Apart,
        env: &Strings,
        (folder, context): (&[u8], &Context),
    ) -> Option<(TraceRegion, Strings)> {
        let mut trace_region = self.arena.reserve()?;
        let surroundings = Surroundings { folder, context };
        let (_, trace) = note_in(&trace_region, &self.library, surroundings, (call.argv, env));
        let (wafd, _) = trace_region.witness()?;
        // Below a layer, a program is another file than it is.
        trace_region.expect(None);
        trace_region.put_ahead(apart.ahead);
        let is_ours = |entry: &&[u8]| entry.starts_with(b"LD_PRELOAD=") || entry.starts_with(b"WAFPARK_TRACE=");
        let variables = trace.env.iter().filter(is_ours).map(<[u8]>::to_vec);
        let plan = Plan {
            at: call.folder,
            room: apart.room,
            folders: apart.folders,
            hidden: apart.hidden,
            renamed: apart.renamed,
            variables: variables.chain(apart.variables.iter().cloned()).collect(),
        };
        let argv = trace.argv.as_ref().unwrap_or(call.argv);
        Some((trace_region, plan.command(wafd.as_bytes(), argv)))
    }
}

/// The setup for one program, and the file that is executed. The path is empty if the file cannot be found.
fn note_in(
    trace_region: &TraceRegion,
    library: &CStr,
    surroundings: Surroundings,
    (argv, env): (&Strings, &Strings),
) -> (Option<PathBuf>, TraceSetup) {
    let candidates = spawn::candidates(argv.iter().next().unwrap_or_default(), env);
    let found = Program::find(&candidates, surroundings.folder);
    let called = found.as_ref().map_or(c"", |(_, called)| called);
    let path = found.as_ref().map(|(program, _)| program.path.to_bytes().to_vec());
    let program = PathBuf::from(OsString::from_vec(path.unwrap_or_default()));
    let has_own_calls = makes_own_calls(called.to_bytes());
    trace_region.guard(has_own_calls && can_guard());
    let witness = trace_region.witness().filter(|_| {
        surroundings.context.has_room(witness::ROOM) && (is_static(&program) || has_own_calls && !can_guard())
    });
    let (argv, variables) = match witness {
        Some((witness, variable)) => (
            Some(witness::command(&witness, called.to_bytes(), argv)),
            vec![variable],
        ),
        None => {
            let theirs = env.iter().find_map(|entry| entry.strip_prefix(b"LD_PRELOAD="));
            (None, trace_region.variables(library.to_bytes(), theirs).to_vec())
        }
    };
    // A traced program keeps the libraries of the command.
    let is_replaced =
        |entry: &&[u8]| entry.starts_with(b"LD_PRELOAD=") && argv.is_none() || entry.starts_with(b"WAFPARK_TRACE=");
    let others = env.iter().filter(|entry| !is_replaced(entry));
    let trace = TraceSetup {
        place: trace_region.place(),
        env: others.chain(variables.iter().map(Vec::as_slice)).collect(),
        argv,
        begins_anew: has_own_calls,
    };
    (Some(program), trace)
}

/// Whether the kernel reports system calls that do not come from libc (`engine/park/guard.c`).
fn can_guard() -> bool {
    static CAN: OnceLock<bool> = OnceLock::new();
    *CAN.get_or_init(|| {
        const SET_DISPATCH: libc::c_int = 59;
        const OFF: libc::c_ulong = 0;
        // SAFETY: switches off what is not on.
        cfg!(target_arch = "x86_64") && unsafe { libc::prctl(SET_DISPATCH, OFF, OFF, OFF, OFF) } == 0
    })
}

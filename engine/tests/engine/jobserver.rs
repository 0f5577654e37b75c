//! Jobservers: a caller's, from which commands take tokens, and our own, from which a command's sub-makes take tokens.

use std::fs::{self, File};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use crate::support::order::{self, shell, Order};
use crate::support::peer::{bytes_of, Peer};
use crate::support::process;
use crate::support::sandbox::{wait_until, Sandbox};
use rustix::fs::OFlags;
use wafengine::wire::{Form, Policy, Request, Verdict};

const NO_POLICY: Policy = Policy {
    no_brake: true,
    tokens: false,
    serve: None,
    load: 0,
    memory: None,
};

fn borrowing() -> Request {
    Request::Policy(Policy {
        tokens: true,
        ..NO_POLICY
    })
}

fn serving(form: Form) -> Request {
    Request::Policy(Policy {
        serve: Some(form),
        ..NO_POLICY
    })
}

/// A caller's jobserver.
struct Caller {
    read: OwnedFd,
    write: OwnedFd,
}

impl Caller {
    fn pipe(tokens: &[u8]) -> Caller {
        let flags = rustix::pipe::PipeFlags::CLOEXEC;
        let (read, write) = rustix::pipe::pipe_with(flags).unwrap();
        rustix::io::write(&write, tokens).unwrap();
        Caller { read, write }
    }

    fn fifo(path: &Path, tokens: &[u8]) -> Caller {
        assert!(std::process::Command::new("mkfifo")
            .arg(path)
            .status()
            .unwrap()
            .success());
        let both: OwnedFd = File::options().read(true).write(true).open(path).unwrap().into();
        rustix::io::write(&both, tokens).unwrap();
        Caller {
            read: both.try_clone().unwrap(),
            write: both,
        }
    }

    fn lend(&self, peer: &mut Peer) {
        let ends = [self.read.as_fd(), self.write.as_fd()];
        peer.write_with(&bytes_of(&borrowing()), &ends).unwrap();
    }

    fn free(&self) -> u64 {
        rustix::io::ioctl_fionread(&self.read).unwrap()
    }

    fn wait_for(&self, tokens: u64) {
        wait_until(&format!("{tokens} tokens are free"), || self.free() == tokens);
    }
}

fn running(watcher: &mut Peer) -> (u64, u64) {
    let slots = &watcher.report()["slots"];
    (slots["running"].as_u64().unwrap(), slots["waiting"].as_u64().unwrap())
}

fn wait_for_running(sandbox: &Sandbox, wanted: (u64, u64)) {
    let mut watcher = sandbox.greeter();
    wait_until(&format!("{wanted:?} run and wait"), || running(&mut watcher) == wanted);
}

fn submit(peer: &mut Peer, order: &Order, count: usize) -> Vec<u32> {
    (0..count).map(|_| peer.submit(order)).collect()
}

#[test]
fn each_command_but_the_first_takes_a_token_and_gives_it_back() {
    let sandbox = Sandbox::started();
    let gate = sandbox.close_gate("gate");
    let caller = Caller::pipe(b"ab");
    let mut peer = sandbox.client(8);
    caller.lend(&mut peer);
    let all = submit(&mut peer, &shell(&gate.script), 6);
    wait_for_running(&sandbox, (3, 3));
    assert_eq!(caller.free(), 0);
    let session = peer.report()["sessions"][0]["neighbor"].clone();
    assert_eq!(session["jobserver"], "jobserver of its caller");
    assert_eq!(session["tokens_held"], 2);
    assert_eq!(session["waits_for"], "jobserver: no token is free");
    gate.open();
    for id in all {
        peer.finish(id).text();
    }
    caller.wait_for(2);
    let mut tokens = [0; 2];
    rustix::io::read(&caller.read, &mut tokens).unwrap();
    tokens.sort_unstable();
    assert_eq!(&tokens, b"ab", "the very same tokens");
}

#[test]
fn a_fifo_is_a_jobserver_too_and_its_flags_stay() {
    let sandbox = Sandbox::started();
    let gate = sandbox.close_gate("gate");
    let caller = Caller::fifo(&sandbox.path("fifo"), b"+");
    let mut peer = sandbox.client(4);
    caller.lend(&mut peer);
    let all = submit(&mut peer, &shell(&gate.script), 3);
    wait_for_running(&sandbox, (2, 1));
    assert!(!rustix::fs::fcntl_getfl(&caller.read)
        .unwrap()
        .contains(OFlags::NONBLOCK));
    gate.open();
    all.into_iter().for_each(|id| drop(peer.finish(id).text()));
    caller.wait_for(1);
}

#[test]
fn a_token_that_becomes_free_starts_the_next_command() {
    let sandbox = Sandbox::started();
    let gate = sandbox.close_gate("gate");
    let caller = Caller::pipe(b"");
    let mut peer = sandbox.client(4);
    caller.lend(&mut peer);
    let all = submit(&mut peer, &shell(&gate.script), 2);
    wait_for_running(&sandbox, (1, 1));
    rustix::io::write(&caller.write, b"+").unwrap();
    wait_for_running(&sandbox, (2, 0));
    gate.open();
    all.into_iter().for_each(|id| drop(peer.finish(id).text()));
    caller.wait_for(1);
}

#[test]
fn a_client_that_is_gone_leaves_no_token_behind() {
    let sandbox = Sandbox::started();
    let gate = sandbox.close_gate("gate");
    let caller = Caller::pipe(b"+++");
    let mut peer = sandbox.client(4);
    caller.lend(&mut peer);
    submit(&mut peer, &shell(&gate.script), 6);
    wait_for_running(&sandbox, (4, 2));
    drop(peer);
    caller.wait_for(3);
}

#[test]
fn cancelled_and_failing_commands_give_their_tokens_back() {
    let sandbox = Sandbox::started();
    let gate = sandbox.close_gate("gate");
    let caller = Caller::pipe(b"++");
    let mut peer = sandbox.client(4);
    caller.lend(&mut peer);
    let all = submit(&mut peer, &shell(&gate.script), 3);
    wait_for_running(&sandbox, (3, 0));
    for id in &all {
        peer.send(&Request::Cancel { id: *id });
    }
    for id in all {
        assert_eq!(peer.finish(id).outcome.verdict, Verdict::Cancelled);
    }
    caller.wait_for(2);
    let broken = submit(&mut peer, &order::command(&["/no/such/program"]), 4);
    for id in broken {
        assert_eq!(peer.finish(id).outcome.verdict, Verdict::NotStarted);
    }
    caller.wait_for(2);
}

#[test]
fn an_engine_that_stops_gives_its_tokens_back() {
    let sandbox = Sandbox::started();
    let gate = sandbox.close_gate("gate");
    let caller = Caller::pipe(b"++");
    let mut peer = sandbox.client(4);
    caller.lend(&mut peer);
    submit(&mut peer, &shell(&gate.script), 3);
    wait_for_running(&sandbox, (3, 0));
    process::kill(peer.pid, libc::SIGTERM);
    caller.wait_for(2);
}

#[test]
fn a_descriptor_that_is_no_pipe_is_not_used_and_the_build_goes_on() {
    let sandbox = Sandbox::started();
    let null: OwnedFd = File::open("/dev/null").unwrap().into();
    let mut peer = sandbox.client(2);
    peer.write_with(&bytes_of(&borrowing()), &[null.as_fd(), null.as_fd()])
        .unwrap();
    assert_eq!(peer.run(&shell("echo x")).text(), "x\n");
}

#[test]
fn a_jobserver_without_its_descriptors_breaks_the_protocol() {
    let sandbox = Sandbox::started();
    let mut peer = sandbox.client(2);
    peer.send(&borrowing());
    peer.is_closed();
}

/// A makefile with four parts that each note how many of them run.
fn write_makefile(sandbox: &Sandbox) {
    fs::write(
        sandbox.path("Makefile"),
        "all: a b c d\na b c d:\n\t@touch run.$@; echo run.* | wc -w >> counts; sleep 0.2; rm run.$@\n",
    )
    .unwrap();
}

fn largest_count(sandbox: &Sandbox) -> u32 {
    let counts = fs::read_to_string(sandbox.path("counts")).unwrap();
    assert_eq!(counts.lines().count(), 4, "every part was made");
    counts.lines().map(|line| line.trim().parse().unwrap()).max().unwrap()
}

#[test]
fn make_inside_a_command_shares_the_slots_through_a_pipe() {
    let sandbox = Sandbox::started();
    write_makefile(&sandbox);
    let mut peer = sandbox.client(3);
    peer.send(&serving(Form::Pipe));
    let done = peer.run(&shell("make -s all").cwd(&sandbox.path("")));
    done.text();
    assert_eq!(
        String::from_utf8_lossy(&done.stderr),
        "",
        "make has no doubts about its jobserver"
    );
    assert_eq!(largest_count(&sandbox), 3, "two tokens, and the command's own slot");
    let session = &peer.report()["sessions"][0]["neighbor"];
    assert_eq!(
        (&session["tokens_held"], &session["tokens_free"]),
        (&0.into(), &2.into())
    );
}

#[test]
fn while_others_of_the_build_run_make_gets_fewer() {
    let sandbox = Sandbox::started();
    write_makefile(&sandbox);
    let gate = sandbox.close_gate("gate");
    let mut peer = sandbox.client(3);
    peer.send(&serving(Form::Pipe));
    let others = submit(&mut peer, &shell(&gate.script), 2);
    wait_for_running(&sandbox, (2, 0));
    peer.run(&shell("make -s all").cwd(&sandbox.path(""))).text();
    assert_eq!(largest_count(&sandbox), 1);
    gate.open();
    others.into_iter().for_each(|id| drop(peer.finish(id).text()));
}

#[test]
fn without_the_wish_commands_get_no_jobserver() {
    let sandbox = Sandbox::started();
    let mut peer = sandbox.client(3);
    assert_eq!(peer.run(&shell("echo $MAKEFLAGS")).text(), "\n");
}

#[test]
fn a_fifo_is_named_while_its_build_lasts() {
    let sandbox = Sandbox::started();
    let mut peer = sandbox.client(3);
    peer.send(&serving(Form::Fifo));
    let told = peer.run(&shell("echo $MAKEFLAGS")).text();
    let path = told
        .trim()
        .rsplit_once("--jobserver-auth=fifo:")
        .expect(&told)
        .1
        .to_owned();
    let token = peer.run(&shell(&format!("head -c1 {path}"))).text();
    assert_eq!(token, "+");
    drop(peer);
    wait_until("the fifo is gone", || !Path::new(&path).exists());
}

#[test]
fn tokens_that_a_killed_program_took_come_back() {
    let sandbox = Sandbox::started();
    let mut peer = sandbox.client(3);
    peer.send(&serving(Form::Fifo));
    let take = shell("f=${MAKEFLAGS##*fifo:}; head -c2 $f > /dev/null; kill -9 $$");
    peer.run(&take).ended(-9);
    let gate = sandbox.close_gate("gate");
    let all = submit(&mut peer, &shell(&gate.script), 3);
    wait_for_running(&sandbox, (3, 0));
    gate.open();
    all.into_iter().for_each(|id| drop(peer.finish(id).text()));
}

#[test]
fn a_callers_jobserver_is_handed_down_instead_of_a_second_one() {
    let sandbox = Sandbox::started();
    write_makefile(&sandbox);
    let caller = Caller::pipe(b"+");
    let mut peer = sandbox.client(8);
    let policy = Request::Policy(Policy {
        tokens: true,
        serve: Some(Form::Pipe),
        ..NO_POLICY
    });
    let ends = [caller.read.as_fd(), caller.write.as_fd()];
    peer.write_with(&bytes_of(&policy), &ends).unwrap();
    peer.run(&shell("make -s all").cwd(&sandbox.path(""))).text();
    assert_eq!(
        largest_count(&sandbox),
        2,
        "the command's own slot, and the caller's only token"
    );
    caller.wait_for(1);
}

//! The man page of a command line. `clap_mangen` writes the options, and this file all other sections.

use clap::Command;
use clap_mangen::roff::{bold, roman, Roff};
use clap_mangen::Man;
use wafengine::files::folder::ENGINE;

const MADE: &str = ".\\\" Written by cargo run --example manual from what --help says: change that instead.\n";
/// The date of the first pages. With the present date, each run would change the pages.
const DATE: &str = "2026-11-22";

/// The page of a program with its commands.
pub fn write(command: &Command, summary: &str, others: &str) -> String {
    let mut command = command.clone().disable_help_subcommand(true);
    command.build();
    let name = command.get_name();
    let mut page = Roff::new();
    let source = format!("waflib-extras {ENGINE}");
    page.control("TH", [name.to_uppercase().as_str(), "1", DATE, source.as_str()]);
    page.control("SH", ["NAME"])
        .text([roman(format!("{name} - {summary}"))]);
    let mut text = page.render() + &sections(&command, "");
    for below in command.get_subcommands() {
        let prefix = format!("{name} {}: ", below.get_name()).to_uppercase();
        text += &sections(below, &prefix);
    }
    let others = Roff::new().control("SH", ["SEE ALSO"]).text([roman(others)]).render();
    // Each part begins with the same two lines, which define apostrophes for roff.
    let start = Roff::new().render();
    let whole = [&text, others.as_str()].concat().replace(&start, "");
    [MADE, &start, &whole].concat()
}

fn sections(command: &Command, prefix: &str) -> String {
    let mut page = Roff::new();
    let usage = command.clone().render_usage().to_string();
    let usage = usage.trim_start_matches("Usage:").lines().map(str::trim);
    verbatim(&mut page, &format!("{prefix}SYNOPSIS"), usage);
    let about = command.get_before_help().or(command.get_about());
    page.control("SH", [format!("{prefix}DESCRIPTION").as_str()]);
    page.text([roman(about.map(ToString::to_string).unwrap_or_default())]);
    let more = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    let (titled, notes): (Vec<&str>, Vec<&str>) = more.split("\n\n").partition(|part| part.contains(":\n"));
    for note in notes.into_iter().filter(|note| !note.is_empty()) {
        page.control("PP", []).text([roman(note)]);
    }
    if command.has_subcommands() {
        page.control("SH", [format!("{prefix}COMMANDS").as_str()]);
        for below in command.get_subcommands() {
            let about = below.get_about().map(ToString::to_string).unwrap_or_default();
            page.control("TP", [])
                .text([bold(below.get_name())])
                .text([roman(about)]);
        }
    }
    let mut rest = Roff::new();
    for part in titled {
        let (title, lines) = part.split_once(":\n").unwrap_or_default();
        let title = format!("{prefix}{}", title.to_uppercase());
        match title.ends_with("EXAMPLES") {
            true => verbatim(&mut rest, &title, lines.lines().map(str::trim)),
            false => pairs(&mut rest, &title, lines),
        }
    }
    [page.render(), options(command, prefix), rest.render()].concat()
}

fn options(command: &Command, prefix: &str) -> String {
    let mut written = Vec::new();
    let section = Man::new(command.clone()).render_options_section(&mut written);
    section.expect("memory takes it");
    let text = String::from_utf8(written).expect("pages are text");
    let begin = text.find(".SH").unwrap_or(text.len());
    let title = Roff::new()
        .control("SH", [format!("{prefix}OPTIONS").as_str()])
        .render();
    text[begin..].replacen(".SH OPTIONS\n", &title, 1)
}

fn verbatim<'a>(page: &mut Roff, title: &str, lines: impl Iterator<Item = &'a str>) {
    page.control("SH", [title]).control("nf", []);
    for line in lines {
        page.text([roman(line)]);
    }
    page.control("fi", []);
}

/// Lines of two columns.
fn pairs(page: &mut Roff, title: &str, lines: &str) {
    page.control("SH", [title]);
    for line in lines.lines().map(str::trim) {
        match line.split_once("  ") {
            Some((name, text)) => page
                .control("TP", [])
                .text([bold(name)])
                .text([roman(text.trim_start())]),
            None => page.control("PP", []).text([roman(line)]),
        };
    }
}

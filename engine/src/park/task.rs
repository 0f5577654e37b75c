//! The small task with which a kind of program is tried: inputs, arguments, outputs.
//!
//! Pure. Known compilers get something to compile. For any other program, only `--version` is known to be harmless.

/// A task for a program.
pub struct Task {
    pub inputs: &'static [(&'static str, &'static str)],
    pub outputs: &'static [&'static str],
    /// The arguments that show that it does the same when parked.
    pub proof: &'static [&'static str],
    /// The arguments with which it is measured.
    pub gauge: &'static [&'static str],
}

const C: &str = "struct pair { int a, b; };\nint add(const struct pair *p) { return p->a + p->b; }\n";
const CXX: &str = "template <class T> struct Pair { T a, b; T sum() const { return a + b; } };\n\
    int add(const Pair<int> &p) { return p.sum(); }\n";
const ASSEMBLER: &str = "\t.text\n\t.globl add\n\t.type add, @function\nadd:\n\tret\n\t.size add, .-add\n";
const FORTRAN: &str = "subroutine add(a, b)\n  integer :: a, b\n  a = a + b\nend subroutine\n";
const RUST: &str = "#![no_std]\npub fn add(a: u32, b: u32) -> u32 {\n    a.wrapping_add(b)\n}\n";

/// Measures the driver's own work only, without the programs that it starts.
const DRIVER_GAUGE: &[&str] = &["-###", "-c", "t.c", "-o", "t.o"];
const COMPILE_C: &[&str] = &["-c", "t.c", "-o", "t.o"];

const DRIVER: Task = Task {
    inputs: &[("t.c", C)],
    outputs: &["t.o"],
    proof: COMPILE_C,
    gauge: DRIVER_GAUGE,
};
const CLANG: Task = Task {
    gauge: COMPILE_C,
    ..DRIVER
};
const CC1: Task = Task {
    inputs: &[("t.c", C)],
    outputs: &["t.s"],
    proof: &["-quiet", "t.c", "-o", "t.s"],
    gauge: &["-quiet", "t.c", "-o", "t.s"],
};
const CC1PLUS: Task = Task {
    inputs: &[("t.cc", CXX)],
    outputs: &["t.s"],
    proof: &["-quiet", "t.cc", "-o", "t.s"],
    gauge: &["-quiet", "t.cc", "-o", "t.s"],
};
const F951: Task = Task {
    inputs: &[("t.f90", FORTRAN)],
    outputs: &["t.s"],
    proof: &["-quiet", "t.f90", "-o", "t.s"],
    gauge: &["-quiet", "t.f90", "-o", "t.s"],
};
const AS: Task = Task {
    inputs: &[("t.s", ASSEMBLER)],
    outputs: &["t.o"],
    proof: &["t.s", "-o", "t.o"],
    gauge: &["t.s", "-o", "t.o"],
};
const LD: Task = Task {
    inputs: &[("t.txt", "text\n")],
    outputs: &["t.o"],
    proof: &["-r", "-b", "binary", "t.txt", "-o", "t.o"],
    gauge: &["-r", "-b", "binary", "t.txt", "-o", "t.o"],
};
const RUSTC: Task = Task {
    inputs: &[("t.rs", RUST)],
    outputs: &["libt.rmeta"],
    proof: &["--crate-type=lib", "--emit=metadata", "t.rs"],
    gauge: &["--crate-type=lib", "--emit=metadata", "t.rs"],
};
const ANY: Task = Task {
    inputs: &[],
    outputs: &[],
    proof: &["--version"],
    gauge: &["--version"],
};

impl Task {
    /// Whether the task is more than a question for the version.
    pub fn is_known(name: &str) -> bool {
        !Task::of(name).inputs.is_empty()
    }

    /// Whether it is a driver of compilers, which starts the parts and passes on no process numbers of them: their exec may
    /// be routed.
    pub fn is_driver(name: &str) -> bool {
        Task::of(name).gauge == DRIVER_GAUGE
    }

    /// By the name of the file: `x86_64-linux-gnu-g++-12`, `clang-14`, `cc1plus`.
    pub fn of(name: &str) -> Task {
        let tool = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
        let tool = tool.strip_suffix('-').unwrap_or(tool);
        // The digits at the end of these names belong to the name.
        let tool = if name == "cc1" || name == "f951" { name } else { tool };
        let last = tool.rsplit('-').next().unwrap_or(tool);
        match last {
            "gcc" | "g++" | "c++" | "cc" | "gfortran" => DRIVER,
            "clang" | "clang++" => CLANG,
            "cc1" => CC1,
            "cc1plus" => CC1PLUS,
            "f951" => F951,
            "as" => AS,
            "ld" | "collect2" | "collect" | "ld.bfd" | "bfd" => LD,
            "rustc" => RUSTC,
            _ => ANY,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proof(name: &str) -> &'static [&'static str] {
        Task::of(name).proof
    }

    #[test]
    fn compilers_are_known_by_their_names_with_prefix_and_version() {
        assert_eq!(proof("x86_64-linux-gnu-g++-12"), DRIVER.proof);
        assert_eq!(proof("gcc"), DRIVER.proof);
        assert_eq!(proof("clang-14"), CLANG.proof);
        assert_eq!(proof("clang++-18"), CLANG.proof);
        assert_eq!(proof("cc1"), CC1.proof);
        assert_eq!(proof("cc1plus"), CC1PLUS.proof);
        assert_eq!(proof("f951"), F951.proof);
        assert_eq!(proof("x86_64-linux-gnu-as"), AS.proof);
        assert_eq!(proof("x86_64-linux-gnu-ld.bfd"), LD.proof);
        assert_eq!(proof("collect2"), LD.proof);
    }

    #[test]
    fn only_drivers_of_gcc_have_their_exec_routed() {
        assert!(["gcc", "x86_64-linux-gnu-g++-12", "c++"]
            .into_iter()
            .all(Task::is_driver));
        assert!(!["dash", "clang-14", "cc1", "make", "bash"]
            .into_iter()
            .any(Task::is_driver));
    }

    #[test]
    fn of_anything_else_only_the_version_is_asked() {
        assert_eq!(proof("protoc"), ANY.proof);
        assert_eq!(proof("clang-format"), ANY.proof);
    }
}

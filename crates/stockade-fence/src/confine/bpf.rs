//! A small assembler for system call filters.
//!
//! Of what the kernel does at each start of a role, taking a filter in costs the most, and that grows with its length.
//! What this makes is a quarter as long as general rules compiled one by one: bits are tested together, and calls that
//! are always denied share one way out.

use rustix::io::Errno;
use seccompiler::{BpfProgram, sock_filter};

/// When a call is denied with EPERM. Arguments are compared as 32 bits, as the kernel takes them.
#[derive(Clone, Copy, Debug)]
pub(super) enum Deny {
    /// Any of the bits is set.
    Any { argument: u8, bits: u32 },
    /// It has this value.
    Equal { argument: u8, value: u32 },
    /// It has none of these values.
    Unless { argument: u8, allowed: &'static [u32] },
    /// Any of the bits is set while any of another argument's bits is.
    AnyWhile { flags: u8, set: u32, argument: u8, bits: u32 },
    /// It has none of these values while another argument has that one.
    UnlessWhile { argument: u8, value: u32, then: u8, allowed: &'static [u32] },
}

const LOAD_WORD: u16 = 0x20;
const JUMP: u16 = 0x05;
const JUMP_EQUAL: u16 = 0x15;
const JUMP_GREATER_EQUAL: u16 = 0x35;
const JUMP_ANY_SET: u16 = 0x45;
const RETURN: u16 = 0x06;

/// `SECCOMP_RET_*` of linux/seccomp.h.
const KILL: u32 = 0x8000_0000;
const ERROR: u32 = 0x0005_0000;
const ALLOW: u32 = 0x7fff_0000;

/// Offsets in `struct seccomp_data`.
const NUMBER: u32 = 0;
const ABI: u32 = 4;
const ARGUMENTS: u32 = 16;

/// `AUDIT_ARCH_X86_64` of linux/audit.h.
const X86_64: u32 = 0xC000_003E;

/// A program being written. Between its parts the accumulator holds the number of the call.
pub(super) struct Assembler(BpfProgram);

impl Assembler {
    pub(super) fn new() -> Self {
        Self(Vec::new())
    }

    /// Kills whatever calls through another ABI, whose numbers mean other things.
    pub(super) fn require_abi(&mut self) {
        self.push(LOAD_WORD, 0, 0, ABI);
        self.push(JUMP_EQUAL, 1, 0, X86_64);
        self.push(RETURN, 0, 0, KILL);
        self.push(LOAD_WORD, 0, 0, NUMBER);
    }

    /// Answers every call from this number on with an error.
    pub(super) fn deny_from(&mut self, number: u32, errno: Errno) {
        self.push(JUMP_GREATER_EQUAL, 0, 1, number);
        self.fail(errno);
    }

    /// Answers each of these calls with an error. A jump reaches 255 instructions: the lists are far shorter.
    pub(super) fn answer<const N: usize>(&mut self, calls: &[i64; N], errno: Errno) {
        const { assert!(N > 0 && N < 250, "a jump cannot reach over so many calls") };
        for (call, left) in calls.iter().zip((0..N).rev()) {
            // Over the rest of the list and the jump after it.
            let over = u8::try_from(left + 1).unwrap_or(u8::MAX);
            self.push(JUMP_EQUAL, over, 0, number(*call));
        }
        self.push(JUMP, 0, 0, 1);
        self.fail(errno);
    }

    /// Denies one call under conditions and allows it otherwise.
    pub(super) fn call(&mut self, call: i64, conditions: &[Deny]) {
        let mut block = Self::new();
        for condition in conditions {
            block.deny(*condition);
        }
        block.push(RETURN, 0, 0, ALLOW);
        let over = u8::try_from(block.0.len()).unwrap_or(u8::MAX);
        self.push(JUMP_EQUAL, 0, over, number(call));
        self.0.extend(block.0);
    }

    /// Allows everything else.
    pub(super) fn finish(mut self) -> BpfProgram {
        self.push(RETURN, 0, 0, ALLOW);
        self.0
    }

    fn deny(&mut self, condition: Deny) {
        match condition {
            Deny::Any { argument, bits } => {
                self.load(argument);
                self.push(JUMP_ANY_SET, 0, 1, bits);
                self.fail(Errno::PERM);
            }
            Deny::Equal { argument, value } => {
                self.load(argument);
                self.push(JUMP_EQUAL, 0, 1, value);
                self.fail(Errno::PERM);
            }
            Deny::Unless { argument, allowed } => {
                self.load(argument);
                self.fail_unless(allowed);
            }
            Deny::AnyWhile { flags, set, argument, bits } => {
                self.load(flags);
                self.push(JUMP_ANY_SET, 0, 3, set);
                self.load(argument);
                self.push(JUMP_ANY_SET, 0, 1, bits);
                self.fail(Errno::PERM);
            }
            Deny::UnlessWhile { argument, value, then, allowed } => {
                self.load(argument);
                // Over the load, a jump for each value, and the failure.
                let over = u8::try_from(allowed.len() + 2).unwrap_or(u8::MAX);
                self.push(JUMP_EQUAL, 0, over, value);
                self.load(then);
                self.fail_unless(allowed);
            }
        }
    }

    fn fail_unless(&mut self, allowed: &[u32]) {
        for (value, left) in allowed.iter().zip((0..allowed.len()).rev()) {
            let over = u8::try_from(left + 1).unwrap_or(u8::MAX);
            self.push(JUMP_EQUAL, over, 0, *value);
        }
        self.fail(Errno::PERM);
    }

    fn load(&mut self, argument: u8) {
        // The low half of the argument: this machine is little-endian.
        self.push(LOAD_WORD, 0, 0, ARGUMENTS + 8 * u32::from(argument));
    }

    fn fail(&mut self, errno: Errno) {
        self.push(RETURN, 0, 0, ERROR | errno.raw_os_error().unsigned_abs());
    }

    fn push(&mut self, code: u16, jt: u8, jf: u8, k: u32) {
        self.0.push(sock_filter { code, jt, jf, k });
    }
}

/// Call numbers are small; one that is none is never called.
fn number(call: i64) -> u32 {
    u32::try_from(call).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a program as the kernel would: (number, ABI, arguments) to what it returns.
    fn run(program: &[sock_filter], call: u32, abi: u32, arguments: [u32; 6]) -> u32 {
        let (mut at, mut accumulator) = (0, 0);
        loop {
            let step = &program[at];
            let jump = |taken| usize::from(if taken { step.jt } else { step.jf });
            at += 1;
            match step.code {
                LOAD_WORD if step.k == NUMBER => accumulator = call,
                LOAD_WORD if step.k == ABI => accumulator = abi,
                LOAD_WORD => accumulator = arguments[((step.k - ARGUMENTS) / 8) as usize],
                JUMP => at += step.k as usize,
                JUMP_EQUAL => at += jump(accumulator == step.k),
                JUMP_GREATER_EQUAL => at += jump(accumulator >= step.k),
                JUMP_ANY_SET => at += jump(accumulator & step.k != 0),
                RETURN => return step.k,
                other => panic!("code {other}"),
            }
        }
    }

    const PERM: u32 = ERROR | 0x01;
    const NOSYS: u32 = ERROR | 0x26;

    fn program(conditions: &[Deny]) -> BpfProgram {
        let mut program = Assembler::new();
        program.require_abi();
        program.answer(&[7, 9, 11], Errno::NOSYS);
        program.call(5, conditions);
        program.call(6, &[Deny::Equal { argument: 0, value: 1 }]);
        program.finish()
    }

    #[test]
    fn only_what_is_listed_is_answered_and_other_abis_die() {
        let program = program(&[]);
        for (call, expected) in [(7, NOSYS), (9, NOSYS), (11, NOSYS), (8, ALLOW), (5, ALLOW)] {
            assert_eq!(run(&program, call, X86_64, [0; 6]), expected, "{call}");
        }
        assert_eq!(run(&program, 8, 0x4000_0003, [0; 6]), KILL);
        assert_eq!(run(&program, 6, X86_64, [1, 0, 0, 0, 0, 0]), PERM, "a block does not end the program");
    }

    #[test]
    fn conditions() {
        let of = |condition: Deny, arguments: [u32; 2]| {
            let program = program(&[condition]);
            run(&program, 5, X86_64, [arguments[0], arguments[1], 0, 0, 0, 0])
        };
        let any = Deny::Any { argument: 1, bits: 0b110 };
        for (value, expected) in [(0b001, ALLOW), (0b010, PERM), (0b111, PERM)] {
            assert_eq!(of(any, [0, value]), expected);
        }
        let unless = Deny::Unless { argument: 0, allowed: &[1, 2, 10] };
        for (value, expected) in [(1, ALLOW), (2, ALLOW), (10, ALLOW), (3, PERM), (0, PERM)] {
            assert_eq!(of(unless, [value, 0]), expected);
        }
        let both = Deny::AnyWhile { flags: 0, set: 0b11, argument: 1, bits: 0b100 };
        for (arguments, expected) in [([0, 4], ALLOW), ([1, 4], PERM), ([2, 5], PERM), ([1, 3], ALLOW)] {
            assert_eq!(of(both, arguments), expected, "{arguments:?}");
        }
        let chained = Deny::UnlessWhile { argument: 0, value: 2, then: 1, allowed: &[0, 6] };
        for (arguments, expected) in [([1, 9], ALLOW), ([2, 6], ALLOW), ([2, 0], ALLOW), ([2, 9], PERM)] {
            assert_eq!(of(chained, arguments), expected, "{arguments:?}");
        }
    }

    #[test]
    fn conditions_of_one_call_are_tried_one_after_another() {
        let program = program(&[
            Deny::Unless { argument: 0, allowed: &[1, 2] },
            Deny::UnlessWhile { argument: 0, value: 2, then: 1, allowed: &[3] },
        ]);
        for (arguments, expected) in [([1, 9], ALLOW), ([2, 3], ALLOW), ([2, 9], PERM), ([5, 3], PERM)] {
            let [first, second] = arguments;
            let answer = run(&program, 5, X86_64, [first, second, 0, 0, 0, 0]);
            assert_eq!(answer, expected, "{arguments:?}");
        }
    }
}

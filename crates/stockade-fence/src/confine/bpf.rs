//! A small assembler for system call filters.
//!
//! Of what the kernel does at each start of a role, taking a filter in costs the most: it plays the program once for each of
//! its calls, to find those that are always allowed (`seccomp_cache_prepare` in kernel/seccomp.c). So a call finds its case
//! by halving: about 15 instructions where a list of all cases would have 90.

use std::collections::BTreeMap;

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

/// How many cases are tried one after another before it is worth to halve them.
const LEAF: usize = 2;

/// A program being written: what comes first, and a case for each call that is not simply allowed.
pub(super) struct Assembler {
    head: Block,
    cases: BTreeMap<u32, Block>,
}

impl Assembler {
    pub(super) fn new() -> Self {
        Self { head: Block::default(), cases: BTreeMap::new() }
    }

    /// Kills whatever calls through another ABI, whose numbers mean other things.
    pub(super) fn require_abi(&mut self) {
        self.head.push(LOAD_WORD, 0, 0, ABI);
        self.head.push(JUMP_EQUAL, 1, 0, X86_64);
        self.head.push(RETURN, 0, 0, KILL);
        self.head.push(LOAD_WORD, 0, 0, NUMBER);
    }

    /// Answers every call from this number on with an error.
    pub(super) fn deny_from(&mut self, number: u32, errno: Errno) {
        self.head.push(JUMP_GREATER_EQUAL, 0, 1, number);
        self.head.fail(errno);
    }

    /// Answers each of these calls with an error.
    pub(super) fn answer(&mut self, calls: &[i64], errno: Errno) {
        for call in calls {
            let mut block = Block::default();
            block.fail(errno);
            self.cases.insert(number(*call), block);
        }
    }

    /// Denies one call under conditions and allows it otherwise.
    pub(super) fn call(&mut self, call: i64, conditions: &[Deny]) {
        let mut block = Block::default();
        for condition in conditions {
            block.deny(*condition);
        }
        block.push(RETURN, 0, 0, ALLOW);
        self.cases.insert(number(call), block);
    }

    /// Allows everything else.
    pub(super) fn finish(self) -> BpfProgram {
        let cases: Vec<(u32, Block)> = self.cases.into_iter().collect();
        let mut program = self.head.0;
        program.extend(halved(&cases).0);
        program
    }
}

/// The cases as a tree over their numbers, which are in order.
fn halved(cases: &[(u32, Block)]) -> Block {
    let mut tree = Block::default();
    let (lower, upper) = cases.split_at(cases.len() / 2);
    let Some((middle, _)) = upper.first().filter(|_| cases.len() > LEAF) else {
        for (number, block) in cases {
            let over = u8::try_from(block.0.len()).unwrap_or(u8::MAX);
            tree.push(JUMP_EQUAL, 0, over, *number);
            tree.0.extend_from_slice(&block.0);
        }
        tree.push(RETURN, 0, 0, ALLOW);
        return tree;
    };
    let lower = halved(lower);
    let over = u32::try_from(lower.0.len()).unwrap_or(u32::MAX);
    if let Ok(over) = u8::try_from(over) {
        tree.push(JUMP_GREATER_EQUAL, over, 0, *middle);
    } else {
        // Farther than a condition reaches.
        tree.push(JUMP_GREATER_EQUAL, 0, 1, *middle);
        tree.push(JUMP, 0, 0, over);
    }
    tree.0.extend(lower.0);
    tree.0.extend(halved(upper).0);
    tree
}

/// Instructions. At their start the accumulator holds the number of the call.
#[derive(Debug, Default)]
struct Block(BpfProgram);

impl Block {
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
    fn every_call_finds_its_own_case_also_far_away_and_soon() {
        let mut program = Assembler::new();
        program.require_abi();
        let answered: Vec<i64> = (0..400).filter(|call| call % 3 == 0).collect();
        program.answer(&answered, Errno::NOSYS);
        for call in (0..400).filter(|call| call % 3 == 1) {
            program.call(call, &[Deny::Equal { argument: 0, value: 1 }]);
        }
        let program = program.finish();
        for call in 0..500 {
            let (expected, with_one) = match call {
                400.. => (ALLOW, ALLOW),
                _ if call % 3 == 0 => (NOSYS, NOSYS),
                _ if call % 3 == 1 => (ALLOW, PERM),
                _ => (ALLOW, ALLOW),
            };
            assert_eq!(run(&program, call, X86_64, [0; 6]), expected, "{call}");
            assert_eq!(run(&program, call, X86_64, [1, 0, 0, 0, 0, 0]), with_one, "{call}");
        }
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

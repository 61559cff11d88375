//! Counting tests by the runner's own lines.

/// Tests counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tally {
    pub(super) passed: u64,
    pub(super) failed: u64,
    pub(super) ignored: u64,
}

impl Tally {
    pub(super) fn add(&mut self, other: &Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.ignored += other.ignored;
    }

    /// Reads one line of output: `test result: ok. 3 passed; 0 failed; 0 ignored; …`.
    pub(super) fn read(&mut self, line: &str) {
        let Some(counts) = line.strip_prefix("test result: ").and_then(|l| l.split_once(". ")) else {
            return;
        };
        for part in counts.1.split("; ") {
            let (Some(number), Some(word)) = (part.split(' ').next(), part.split(' ').nth(1)) else {
                continue;
            };
            let Ok(number) = number.parse::<u64>() else { continue };
            match word {
                "passed" => self.passed += number,
                "failed" => self.failed += number,
                "ignored" => self.ignored += number,
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Tally;

    #[test]
    fn counts_the_lines_of_the_runner_and_nothing_else() {
        let mut tally = Tally::default();
        for line in [
            "running 3 tests",
            "test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 2 filtered out; finished in 0.01s",
            "test result: FAILED. 5 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 9.00s",
            "the agent said: test result: ok. 9 passed",
        ] {
            tally.read(line);
        }
        assert_eq!(tally, Tally { passed: 8, failed: 2, ignored: 1 });
    }
}

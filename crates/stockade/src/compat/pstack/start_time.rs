//! When a process started, as text: what the tool takes for the identity of a pid, which others may get again.

/// Clock ticks a second in `/proc/PID/stat`, on every x86_64 kernel (proc(5), `USER_HZ`).
const TICKS: i64 = 100;

/// The start of a process in the form of `ps -o lstart=` in UTC; `None`: there is no such process, or it has ended.
pub(super) fn of(pid: u32) -> Option<String> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let boot = std::fs::read_to_string("/proc/stat").ok()?;
    text(&stat, &boot)
}

fn text(stat: &str, boot: &str) -> Option<String> {
    // The command in field 2 may hold blanks and parentheses; fields 3 and 22 follow it.
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_whitespace();
    if matches!(fields.next()?, "Z" | "X" | "x") {
        return None;
    }
    let ticks: i64 = fields.nth(18)?.parse().ok()?;
    let boot: i64 = boot.lines().find_map(|l| l.strip_prefix("btime "))?.trim().parse().ok()?;
    let second = jiff::Timestamp::from_second(boot.checked_add(ticks / TICKS)?).ok()?;
    Some(second.strftime("%a %b %e %H:%M:%S %Y").to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_is_the_one_of_ps() {
        let stat = "7 (a) b (c)) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 12345 20";
        let boot = "cpu 1 2\nbtime 1764500000\nprocesses 9\n";
        assert_eq!(text(stat, boot).unwrap(), "Sun Nov 30 10:55:23 2025");
        assert_eq!(text(&stat.replace(" S ", " Z "), boot), None);
        assert_eq!(text("7 (a", boot), None);
        assert!(of(std::process::id()).is_some());
        assert_eq!(of(u32::MAX), None);
    }
}

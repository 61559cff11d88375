//! Where control groups can be made. Nothing is made for the answer: whether a folder can be written is asked of the
//! kernel, and a run whose group cannot be made after all is refused by that step.

use std::path::{Path, PathBuf};

use rustix::fs::{Access, AtFlags, CWD};
use rustix::io::Errno;
use stockade_core::limits::{CgroupFacts, CgroupHierarchy};
use stockade_core::survey::Refused;

use super::{host, refused};

const OWN: &str = "/proc/self/cgroup";
const MOUNTS: &str = "/proc/self/mountinfo";
/// The controllers that hold limits.
const WANTED: [&str; 2] = ["memory", "pids"];

/// A mounted hierarchy.
#[derive(Debug, PartialEq, Eq)]
struct Mounted {
    version: u8,
    /// What of the hierarchy is mounted.
    root: PathBuf,
    at: PathBuf,
    /// Version 1: its controllers.
    controllers: Vec<String>,
}

/// Looks where this process may make groups.
pub(super) fn find() -> CgroupFacts {
    let (own, mounts) = (host::read(OWN).unwrap_or_default(), host::read(MOUNTS).unwrap_or_default());
    let mut facts = CgroupFacts::default();
    let mut obstacle = refused("find a mounted memory controller", 0);
    for mounted in mounted(&mounts) {
        let Some(folder) = own_folder(&own, &mounted) else { continue };
        let found =
            if mounted.version == 1 { version_1(&mounted, &folder) } else { version_2(&mounted, &folder) };
        match found {
            Ok(hierarchy) => facts.hierarchies.push(hierarchy),
            Err(refused) if mounted.version == 2 || mounted.controllers.iter().any(|c| c == "memory") => {
                obstacle = refused;
            }
            Err(_) => {}
        }
    }
    if facts.with("memory").is_none() {
        facts.refused = Some(obstacle);
    }
    facts
}

fn version_1(mounted: &Mounted, folder: &Path) -> Result<CgroupHierarchy, Refused> {
    may_make_in(folder)?;
    Ok(CgroupHierarchy { version: 1, parent: folder.to_owned(), controllers: mounted.controllers.clone() })
}

/// The nearest group upwards whose children have a controller of ours; where there is none, the nearest that can be
/// written at all. A group with processes of its own cannot give its children controllers, and other people's processes
/// are not moved.
fn version_2(mounted: &Mounted, folder: &Path) -> Result<CgroupHierarchy, Refused> {
    let mut best: Option<CgroupHierarchy> = None;
    let mut obstacle = None;
    for parent in folder.ancestors().take_while(|p| p.starts_with(&mounted.at)) {
        if let Err(refused) = may_make_in(parent).and_then(|()| may_write(&parent.join("cgroup.procs"))) {
            obstacle.get_or_insert(refused);
            continue;
        }
        let text = host::read(&parent.join("cgroup.subtree_control").to_string_lossy()).unwrap_or_default();
        let controllers: Vec<String> =
            text.split_whitespace().filter(|c| WANTED.contains(c)).map(str::to_owned).collect();
        let more = best.as_ref().is_none_or(|b| controllers.len() > b.controllers.len());
        if more {
            best = Some(CgroupHierarchy { version: 2, parent: parent.to_owned(), controllers });
        }
    }
    best.ok_or_else(|| {
        obstacle.unwrap_or_else(|| refused("find a control group", Errno::NOENT.raw_os_error()))
    })
}

fn may_make_in(folder: &Path) -> Result<(), Refused> {
    may(folder, Access::WRITE_OK | Access::EXEC_OK)
}

fn may_write(file: &Path) -> Result<(), Refused> {
    may(file, Access::WRITE_OK)
}

fn may(path: &Path, access: Access) -> Result<(), Refused> {
    rustix::fs::accessat(CWD, path, access, AtFlags::EACCESS)
        .map_err(|e| refused(format!("access({})", path.display()), e.raw_os_error()))
}

/// The folder of this process's own group in a hierarchy, where it lies in what is mounted.
fn own_folder(own: &str, mounted: &Mounted) -> Option<PathBuf> {
    let path = own.lines().find_map(|line| {
        let mut fields = line.splitn(3, ':');
        let (_, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
        let is_it = match mounted.version {
            1 => mounted.controllers.iter().any(|m| controllers.split(',').any(|c| c == m)),
            _ => controllers.is_empty(),
        };
        is_it.then_some(path)
    })?;
    let below = Path::new(path).strip_prefix(&mounted.root).ok()?;
    let plain = below.components().all(|c| matches!(c, std::path::Component::Normal(_)));
    plain.then(|| if below.as_os_str().is_empty() { mounted.at.clone() } else { mounted.at.join(below) })
}

/// The hierarchies among the lines of proc_pid_mountinfo(5) that could hold a limit.
fn mounted(text: &str) -> Vec<Mounted> {
    text.lines()
        .filter_map(|line| {
            let (head, tail) = line.split_once(" - ")?;
            let mut head = head.split(' ').skip(3);
            let (root, at) = (head.next()?.into(), head.next()?.into());
            let mut tail = tail.split(' ');
            match tail.next()? {
                "cgroup2" => Some(Mounted { version: 2, root, at, controllers: Vec::new() }),
                "cgroup" => {
                    let options = tail.nth(1)?;
                    let controllers: Vec<String> =
                        options.split(',').filter(|o| WANTED.contains(o)).map(str::to_owned).collect();
                    (!controllers.is_empty()).then_some(Mounted { version: 1, root, at, controllers })
                }
                _ => None,
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HYBRID: &str = "\
29 22 0:24 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
30 29 0:25 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu
35 29 0:30 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
38 29 0:33 / /sys/fs/cgroup/pids rw,relatime - cgroup cgroup rw,pids
40 29 0:35 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
";

    #[test]
    fn hierarchies_are_found_among_mounts() {
        let found = mounted(HYBRID);
        let seen: Vec<_> = found.iter().map(|m| (m.version, m.at.to_str().unwrap())).collect();
        assert_eq!(
            seen,
            [(1, "/sys/fs/cgroup/memory"), (1, "/sys/fs/cgroup/pids"), (2, "/sys/fs/cgroup/unified")]
        );
    }

    #[test]
    fn the_own_folder_lies_below_what_is_mounted() {
        let own = "8:pids:/\n4:memory:/job/7\n0::/../outside\n";
        let found = mounted(HYBRID);
        let folders: Vec<_> = found.iter().map(|m| own_folder(own, m)).collect();
        let expected =
            [Some("/sys/fs/cgroup/memory/job/7".into()), Some("/sys/fs/cgroup/pids".into()), None::<PathBuf>];
        assert_eq!(folders, expected);

        let part = Mounted {
            version: 2,
            root: "/docker/x".into(),
            at: "/sys/fs/cgroup".into(),
            controllers: Vec::new(),
        };
        assert_eq!(own_folder("0::/docker/x/y\n", &part), Some("/sys/fs/cgroup/y".into()));
        assert_eq!(own_folder("0::/elsewhere\n", &part), None);
    }

    #[test]
    fn of_version_2_the_nearest_group_whose_children_have_controllers_is_taken() {
        let at = std::env::temp_dir().join(format!("stockade-cgroups-{}", std::process::id()));
        let own = at.join("app.slice/terminal.scope");
        std::fs::create_dir_all(&own).unwrap();
        for (folder, children) in
            [(&at, "cpu memory pids"), (&at.join("app.slice"), "cpu io memory pids"), (&own, "")]
        {
            std::fs::write(folder.join("cgroup.procs"), "").unwrap();
            std::fs::write(folder.join("cgroup.subtree_control"), children).unwrap();
        }
        let mounted = Mounted { version: 2, root: "/".into(), at: at.clone(), controllers: Vec::new() };
        let found = version_2(&mounted, &own).unwrap();
        assert_eq!(
            (found.parent, found.controllers),
            (at.join("app.slice"), vec!["memory".into(), "pids".into()])
        );

        // Nobody hands a controller on: the own group still says when it is empty, and ends as a whole.
        for folder in [&at, &at.join("app.slice")] {
            std::fs::write(folder.join("cgroup.subtree_control"), "cpu").unwrap();
        }
        let found = version_2(&mounted, &own).unwrap();
        assert_eq!((found.parent, found.controllers), (own.clone(), Vec::new()));
        let nowhere = version_2(&mounted, &at.join("none")).map(|h| h.parent);
        assert_eq!(nowhere, Ok(at.clone()), "the nearest that is there");
        std::fs::remove_dir_all(at).unwrap();
    }
}

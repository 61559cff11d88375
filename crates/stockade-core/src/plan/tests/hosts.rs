//! Hosts as the survey measures them, one function per class. The values were measured on such hosts.

use std::path::PathBuf;

use crate::limits::{CgroupFacts, CgroupHierarchy};
use crate::survey::{
    BubblewrapFacts, CallerFacts, LandlockFacts, OuterFence, Refused, Rung, RungTrial, Survey,
};

pub(super) fn refused(step: &str, errno: i32, errno_name: &str) -> Refused {
    Refused { step: step.to_owned(), errno, errno_name: errno_name.to_owned() }
}

/// Every rung as tried: those below `ns` meet what it meets, and bubblewrap does too.
fn trials(nsl: Option<Refused>, ns: Option<&Refused>) -> Vec<RungTrial> {
    let below = Rung::ALL.into_iter().skip(1).map(|rung| (rung, ns.cloned()));
    std::iter::once((Rung::Nsl, nsl))
        .chain(below)
        .map(|(rung, refused)| RungTrial { rung, refused, elapsed_us: 1_000 })
        .collect()
}

/// The same host, but for what one rung answers.
pub(super) fn with_rung(mut survey: Survey, rung: Rung, refused: Option<&Refused>) -> Survey {
    survey.rungs.iter_mut().filter(|t| t.rung == rung).for_each(|t| t.refused = refused.cloned());
    survey
}

fn bubblewrap(path: Option<&str>, version: Option<&str>) -> BubblewrapFacts {
    BubblewrapFacts {
        path: path.map(PathBuf::from),
        setuid: false,
        untrusted: None,
        version: version.map(str::to_owned),
    }
}

/// Everything on, an ordinary user.
pub(super) fn plain() -> Survey {
    Survey {
        kernel: "6.18.44".to_owned(),
        machine: "x86_64".to_owned(),
        caller: CallerFacts {
            uid: 1000,
            gid: 1000,
            groups: vec![27],
            initial_user_namespace: true,
            mount_privilege: false,
        },
        landlock: LandlockFacts { abi: Some(7), refused: None, layers_in_use: 0 },
        seccomp_refused: None,
        rungs: trials(None, None),
        bubblewrap: bubblewrap(Some("/usr/bin/bwrap"), Some("0.8.0")),
        socat: Some(PathBuf::from("/usr/bin/socat")),
        outer: OuterFence::default(),
        cgroups: no_groups("access(/sys/fs/cgroup)", 13, "EACCES"),
        lsm: Some("lockdown,capability,landlock,yama,apparmor".to_owned()),
    }
}

fn landlock_missing(errno: i32, errno_name: &str) -> Survey {
    let missing = refused("landlock_create_ruleset", errno, errno_name);
    Survey {
        landlock: LandlockFacts { abi: None, refused: Some(missing.clone()), layers_in_use: 0 },
        rungs: trials(Some(missing), None),
        lsm: None,
        ..plain()
    }
}

/// A kernel built without Landlock.
pub(super) fn no_landlock() -> Survey {
    landlock_missing(38, "ENOSYS")
}

/// A kernel with Landlock that is not on the `lsm=` list.
pub(super) fn landlock_eopnotsupp() -> Survey {
    landlock_missing(95, "EOPNOTSUPP")
}

/// No `bwrap` on PATH.
pub(super) fn no_bubblewrap() -> Survey {
    let refused = Some(refused("find bwrap on PATH", 2, "ENOENT"));
    with_rung(Survey { bubblewrap: bubblewrap(None, None), ..plain() }, Rung::Bs, refused.as_ref())
}

/// The first `bwrap` on PATH is one of the caller's own.
pub(super) fn own_bubblewrap() -> Survey {
    let path = "/home/me/bin/bwrap";
    let untrusted = Some(format!("`{path}` belongs to user 1000"));
    let found = BubblewrapFacts { untrusted, ..bubblewrap(Some(path), None) };
    let refused = Some(refused("who can change bwrap", 0, ""));
    with_rung(Survey { bubblewrap: found, ..plain() }, Rung::Bs, refused.as_ref())
}

/// A setuid `bwrap`.
pub(super) fn setuid_bubblewrap() -> Survey {
    Survey {
        bubblewrap: BubblewrapFacts { setuid: true, ..plain().bubblewrap },
        ..with_rung(plain(), Rung::Bs, Some(&refused("stat(bwrap)", 0, "")))
    }
}

/// Neither Landlock nor bubblewrap.
pub(super) fn both_missing() -> Survey {
    Survey { bubblewrap: no_bubblewrap().bubblewrap, ..no_landlock() }
}

fn everywhere(step: &str, errno: i32, errno_name: &str) -> Survey {
    let r = refused(step, errno, errno_name);
    Survey { rungs: trials(Some(r.clone()), Some(&r)), ..plain() }
}

/// `kernel.unprivileged_userns_clone=0`.
pub(super) fn no_userns() -> Survey {
    everywhere("clone(NEWUSER)", 1, "EPERM")
}

/// `user.max_user_namespaces=0`.
pub(super) fn userns_limit() -> Survey {
    everywhere("clone(NEWUSER)", 28, "ENOSPC")
}

/// User namespaces restricted by AppArmor, without a profile for bubblewrap.
pub(super) fn apparmor() -> Survey {
    everywhere("mount(MS_PRIVATE)", 13, "EACCES")
}

/// User namespaces restricted by AppArmor, with a profile that lets bubblewrap of this version make them.
pub(super) fn apparmor_with_bubblewrap(version: Option<&str>) -> Survey {
    let survey = Survey { bubblewrap: bubblewrap(Some("/usr/bin/bwrap"), version), ..apparmor() };
    with_rung(survey, Rung::Bs, None)
}

/// A container with covered parts of /proc and no seccomp filter.
pub(super) fn masked_proc() -> Survey {
    with_rung(everywhere("fsmount(proc)", 1, "EPERM"), Rung::NsHostproc, None)
}

/// A host that lets the fence make namespaces and nobody inside it (AppArmor's restriction with a profile for Stockade).
pub(super) fn no_nesting() -> Survey {
    with_rung(plain(), Rung::NsNest, Some(&refused("mount(MS_PRIVATE) inside", 13, "EACCES")))
}

/// A container under Docker's default seccomp filter.
pub(super) fn docker() -> Survey {
    Survey {
        caller: root().caller,
        outer: OuterFence {
            seccomp_filters: 1,
            intercepted_calls: ["unshare=EPERM", "setns=EPERM", "mount=EPERM", "clone3=ENOSYS"]
                .map(str::to_owned)
                .to_vec(),
            landlock_layers: 0,
            no_new_privs: false,
        },
        bubblewrap: no_bubblewrap().bubblewrap,
        ..no_userns()
    }
}

/// Inside another program's Landlock domain.
pub(super) fn in_landlock() -> Survey {
    Survey {
        landlock: LandlockFacts { abi: Some(7), refused: None, layers_in_use: 1 },
        outer: OuterFence { landlock_layers: 1, no_new_privs: true, ..OuterFence::default() },
        ..everywhere("mount(MS_PRIVATE)", 1, "EPERM")
    }
}

/// Everything on, root.
pub(super) fn root() -> Survey {
    let caller = CallerFacts {
        uid: 0,
        gid: 0,
        groups: Vec::new(),
        initial_user_namespace: true,
        mount_privilege: true,
    };
    Survey { caller, cgroups: groups_v1(), ..plain() }
}

fn no_groups(step: &str, errno: i32, errno_name: &str) -> CgroupFacts {
    CgroupFacts { hierarchies: Vec::new(), refused: Some(refused(step, errno, errno_name)) }
}

fn group(version: u8, parent: &str, controllers: &[&str]) -> CgroupHierarchy {
    CgroupHierarchy {
        version,
        parent: PathBuf::from(parent),
        controllers: controllers.iter().map(ToString::to_string).collect(),
    }
}

/// Version 1 with its controllers apart, and a version 2 without any.
pub(super) fn groups_v1() -> CgroupFacts {
    let hierarchies = vec![
        group(1, "/sys/fs/cgroup/memory", &["memory"]),
        group(1, "/sys/fs/cgroup/pids", &["pids"]),
        group(2, "/sys/fs/cgroup/unified", &[]),
    ];
    CgroupFacts { hierarchies, refused: None }
}

/// A user's delegated part of version 2.
pub(super) fn groups_delegated() -> CgroupFacts {
    let slice = "/sys/fs/cgroup/user.slice/user-1000.slice/user@1000.service/app.slice";
    CgroupFacts { hierarchies: vec![group(2, slice, &["memory", "pids"])], refused: None }
}

/// Root of a container with a user namespace of its own.
pub(super) fn root_of_a_container() -> Survey {
    let caller = CallerFacts { initial_user_namespace: false, ..root().caller };
    Survey { caller, cgroups: no_groups("access(/sys/fs/cgroup)", 30, "EROFS"), ..plain() }
}

/// Root of a container that shares the host's user namespace and may not mount.
pub(super) fn root_without_mounting() -> Survey {
    let caller = CallerFacts { mount_privilege: false, ..root().caller };
    Survey { caller, ..plain() }
}

/// The cloud virtual machine of Claude Code on the web.
pub(super) fn claude_code_web() -> Survey {
    Survey { caller: root().caller, cgroups: groups_v1(), ..both_missing() }
}

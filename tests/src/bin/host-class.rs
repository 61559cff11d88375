//! Runs a program on a host of another class than this one: a kernel without Landlock, a container, a fresh user.
//!
//! `host-class CLASS... -- PROGRAM ARGUMENT...`; several classes may be combined. The program replaces this one,
//! so its exit code is the program's; 125 means that a class could not be applied, with the reason on stderr.
//! A kernel feature is taken away by a seccomp filter that gives the answer such a kernel gives.
#![expect(
    clippy::disallowed_methods,
    clippy::print_stderr,
    reason = "a test tool whose job is to change the environment and start a program"
)]

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, anyhow, bail, ensure};
use landlock::{
    ABI, Access, AccessFs, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset, RulesetAttr,
    RulesetCreatedAttr, RulesetStatus,
};
use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_change};
use rustix::process::{DumpableBehavior, Gid, Uid, set_dumpable_behavior};
use rustix::thread::{CapabilitySet, CapabilitySets, UnshareFlags};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    TargetArch,
};

/// Exit code for "the class could not be applied", as env(1) and the shells use it for their own failures.
const CANNOT_APPLY: u8 = 125;

fn main() -> ExitCode {
    let Err(error) = become_program();
    eprintln!("host-class: {error:#}");
    ExitCode::from(CANNOT_APPLY)
}

fn become_program() -> Result<std::convert::Infallible> {
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    let mut parts = arguments.splitn(2, |argument| argument == "--");
    let (Some(classes), Some([program, rest @ ..])) = (parts.next(), parts.next()) else {
        bail!("usage: host-class CLASS... -- PROGRAM ARGUMENT...");
    };
    let mut host = Host::default();
    for class in classes {
        let class = class.to_str().context("a class that is not text")?;
        host.add(class).with_context(|| format!("class {class}"))?;
    }
    let mut command = if host.in_bubblewrap {
        let mut bubblewrap = Command::new("bwrap");
        bubblewrap.args(["--cap-drop", "ALL", "--dev-bind", "/", "/", "--"]).arg(program);
        bubblewrap
    } else {
        Command::new(program)
    };
    command.args(rest);
    host.apply(&mut command)?;
    Err(command.exec()).with_context(|| format!("exec {}", program.display()))
}

/// The host to be imitated.
#[derive(Default)]
struct Host {
    /// Which error number a call gives, and under which condition on its arguments.
    denials: Vec<(i32, Vec<Denial>)>,
    new_uid: Option<u32>,
    in_landlock: bool,
    in_bubblewrap: bool,
    without_bwrap: bool,
    without_lsm_file: bool,
    with_few_capabilities: bool,
    without_namespaces_left: bool,
    variables: Vec<(&'static str, &'static str)>,
}

/// A call that is denied.
enum Denial {
    /// Whatever its arguments.
    Always(libc::c_long),
    /// If its first argument has one of these bits.
    FlagsIn(libc::c_long, u64),
}

/// Where the kernel lists its security modules, if securityfs is mounted.
const LSM_FILE: &str = "/sys/kernel/security/lsm";

const LANDLOCK_CALLS: [libc::c_long; 3] =
    [libc::SYS_landlock_create_ruleset, libc::SYS_landlock_add_rule, libc::SYS_landlock_restrict_self];

/// Every CLONE_NEW* flag: what container filters look for in clone(2).
const NEW_NAMESPACE: u64 = 0x7E02_0000;
/// `CLONE_NEWUSER` of linux/sched.h.
const NEW_USER: u64 = 0x1000_0000;

/// What Docker's default filter denies to a container without capabilities, as far as a fence meets it.
const DOCKER_DENIES: [libc::c_long; 23] = [
    libc::SYS_unshare,
    libc::SYS_setns,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_keyctl,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_open_by_handle_at,
    libc::SYS_open_tree,
    libc::SYS_move_mount,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
];

/// What a container of Docker's has without options.
const DOCKER_KEEPS: CapabilitySet = CapabilitySet::CHOWN
    .union(CapabilitySet::DAC_OVERRIDE)
    .union(CapabilitySet::FOWNER)
    .union(CapabilitySet::FSETID)
    .union(CapabilitySet::KILL)
    .union(CapabilitySet::SETGID)
    .union(CapabilitySet::SETUID)
    .union(CapabilitySet::SETPCAP)
    .union(CapabilitySet::NET_BIND_SERVICE)
    .union(CapabilitySet::NET_RAW)
    .union(CapabilitySet::SYS_CHROOT)
    .union(CapabilitySet::MKNOD)
    .union(CapabilitySet::AUDIT_WRITE)
    .union(CapabilitySet::SETFCAP);

impl Host {
    fn add(&mut self, class: &str) -> Result<()> {
        let always = |calls: &[libc::c_long]| calls.iter().copied().map(Denial::Always).collect::<Vec<_>>();
        match class {
            "no-landlock" => self.denials.push((libc::ENOSYS, always(&LANDLOCK_CALLS))),
            "landlock-eopnotsupp" => self.denials.push((libc::EOPNOTSUPP, always(&LANDLOCK_CALLS))),
            // As the sysctl answers it: unshare(0) still works, so nothing points to a filter.
            "no-userns-sysctl" => self.denials.push((libc::EPERM, user_namespaces())),
            // No call at all makes one; clone3 cannot be told apart by its arguments, so it is gone.
            "no-userns" => {
                self.denials.push((libc::EPERM, user_namespaces()));
                self.denials.push((libc::ENOSYS, always(&[libc::SYS_clone3])));
            }
            "docker" => {
                let mut denied = always(&DOCKER_DENIES);
                denied.push(Denial::FlagsIn(libc::SYS_clone, NEW_NAMESPACE));
                self.denials.push((libc::EPERM, denied));
                self.denials.push((libc::ENOSYS, always(&[libc::SYS_clone3])));
            }
            // As AppArmor answers an unprivileged mount: EACCES, not EPERM.
            "mount-eacces" => {
                let mounts = [libc::SYS_mount, libc::SYS_move_mount, libc::SYS_mount_setattr];
                self.denials.push((libc::EACCES, always(&mounts)));
            }
            "in-landlock" => self.in_landlock = true,
            "in-bwrap" => self.in_bubblewrap = true,
            "no-bwrap" => self.without_bwrap = true,
            "few-capabilities" => self.with_few_capabilities = true,
            "max-user-namespaces-0" => self.without_namespaces_left = true,
            "claude-code-web" => {
                self.add("no-landlock")?;
                self.add("no-bwrap")?;
                self.without_lsm_file = true;
                self.variables.extend([
                    ("CLAUDECODE", "1"),
                    ("CLAUDE_CODE_ENTRYPOINT", "remote"),
                    ("IS_SANDBOX", "yes"),
                ]);
            }
            _ => {
                if let Some(uid) = class.strip_prefix("new-uid=") {
                    self.new_uid = Some(uid.parse()?);
                } else if let Some((call, answer)) = class.split_once('=') {
                    self.denials.push((odd_answer(answer)?, calls_named(call)?));
                } else {
                    bail!("unknown class");
                }
            }
        }
        Ok(())
    }

    /// Mounts first, then ids, then Landlock, then filters: each may forbid what comes before it.
    fn apply(&self, command: &mut Command) -> Result<()> {
        command.envs(self.variables.iter().copied());
        if self.without_bwrap {
            command.env("PATH", path_without_bwrap(&std::env::var_os("PATH").unwrap_or_default())?);
        }
        if self.without_lsm_file && Path::new(LSM_FILE).exists() {
            hide_lsm_file().context("hiding the list of security modules (root is needed)")?;
        }
        if self.with_few_capabilities {
            keep_few_capabilities().context("dropping capabilities (root is needed)")?;
        }
        if let Some(uid) = self.new_uid {
            become_user(uid).with_context(|| format!("becoming uid {uid} (root is needed)"))?;
        }
        if self.without_namespaces_left {
            allow_no_namespaces().context("class max-user-namespaces-0")?;
        }
        if self.in_landlock {
            enter_landlock().context("class in-landlock")?;
        }
        for (errno, denials) in &self.denials {
            seccompiler::apply_filter(&filter(*errno, denials)?).context("seccomp filter")?;
        }
        Ok(())
    }
}

/// An answer that a kernel does not give: success for something that was not done, or an error of something else.
fn odd_answer(name: &str) -> Result<i32> {
    match name {
        "0" => Ok(0),
        "EILSEQ" => Ok(libc::EILSEQ),
        _ => bail!("unknown answer"),
    }
}

/// Calls by a name: `fchdir=0` is a class.
fn calls_named(name: &str) -> Result<Vec<Denial>> {
    let call = match name {
        "clone-newuser" => return Ok(user_namespaces()),
        "landlock" => return Ok(LANDLOCK_CALLS.map(Denial::Always).into()),
        "fchdir" => libc::SYS_fchdir,
        "chdir" => libc::SYS_chdir,
        "pivot_root" => libc::SYS_pivot_root,
        "umount2" => libc::SYS_umount2,
        "mount" => libc::SYS_mount,
        "move_mount" => libc::SYS_move_mount,
        "mount_setattr" => libc::SYS_mount_setattr,
        "open_tree" => libc::SYS_open_tree,
        "fsopen" => libc::SYS_fsopen,
        "fsconfig" => libc::SYS_fsconfig,
        "fsmount" => libc::SYS_fsmount,
        "setresuid" => libc::SYS_setresuid,
        "setresgid" => libc::SYS_setresgid,
        "setgroups" => libc::SYS_setgroups,
        "prctl" => libc::SYS_prctl,
        "capset" => libc::SYS_capset,
        "seccomp" => libc::SYS_seccomp,
        "keyctl" => libc::SYS_keyctl,
        "close_range" => libc::SYS_close_range,
        "uname" => libc::SYS_uname,
        _ => bail!("unknown call"),
    };
    Ok(vec![Denial::Always(call)])
}

/// The calls that make a user namespace.
fn user_namespaces() -> Vec<Denial> {
    vec![Denial::FlagsIn(libc::SYS_unshare, NEW_USER), Denial::FlagsIn(libc::SYS_clone, NEW_USER)]
}

fn filter(errno: i32, denials: &[Denial]) -> Result<BpfProgram> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = BTreeMap::new();
    for denial in denials {
        match denial {
            Denial::Always(call) => {
                rules.insert(*call, Vec::new());
            }
            Denial::FlagsIn(call, mask) => {
                let bits = (0..u64::BITS).map(|bit| 1_u64 << bit).filter(|bit| mask & bit != 0);
                let each = bits.map(|bit| {
                    let has_bit =
                        SeccompCondition::new(0, SeccompCmpArgLen::Qword, SeccompCmpOp::MaskedEq(bit), bit)?;
                    SeccompRule::new(vec![has_bit])
                });
                rules.insert(*call, each.collect::<Result<_, _>>()?);
            }
        }
    }
    let deny = SeccompAction::Errno(u32::try_from(errno)?);
    Ok(SeccompFilter::new(rules, SeccompAction::Allow, deny, TargetArch::x86_64)?.try_into()?)
}

/// Covers the folder of the security modules' files, in a mount namespace of this process's own.
#[expect(
    deprecated,
    reason = "the other form is unsafe for programs with threads or shared descriptor tables, and this is neither"
)]
fn hide_lsm_file() -> Result<()> {
    let folder = Path::new(LSM_FILE).parent().context("the file has no folder")?;
    rustix::thread::unshare(UnshareFlags::NEWNS).context("unshare")?;
    mount_change("/", MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC)
        .context("make slave")?;
    mount("none", folder, "tmpfs", MountFlags::RDONLY, None).context("mount")?;
    Ok(())
}

/// A user with this id, the group of the same number and no other groups.
fn become_user(id: u32) -> Result<()> {
    let (uid, gid) = (Uid::from_raw(id), Gid::from_raw(id));
    rustix::thread::set_thread_groups(&[]).context("setgroups")?;
    rustix::thread::set_thread_res_gid(gid, gid, gid).context("setresgid")?;
    rustix::thread::set_thread_res_uid(uid, uid, uid).context("setresuid")?;
    Ok(())
}

/// Leaves what Docker leaves to the root of a container; none of it lets anybody mount.
fn keep_few_capabilities() -> Result<()> {
    for capability in CapabilitySet::all().difference(DOCKER_KEEPS).iter() {
        if rustix::thread::capability_is_in_bounding_set(capability).is_ok_and(|held| held) {
            rustix::thread::remove_capability_from_bounding_set(capability).context("capbset drop")?;
        }
    }
    let held = CapabilitySets {
        effective: DOCKER_KEEPS,
        permitted: DOCKER_KEEPS,
        inheritable: CapabilitySet::empty(),
    };
    rustix::thread::set_capabilities(None, held).context("capset")
}

/// The limit of user namespaces is one of each user namespace. In one of its own this process sets it to 0, and stays
/// who it was; nobody else has a name there.
#[expect(
    deprecated,
    reason = "the other form is unsafe for programs with threads or shared descriptor tables, and this is neither"
)]
fn allow_no_namespaces() -> Result<()> {
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    // The id maps belong to whoever may dump the process, which a change of ids has left off.
    set_dumpable_behavior(DumpableBehavior::Dumpable).context("prctl(SET_DUMPABLE)")?;
    rustix::thread::unshare(UnshareFlags::NEWUSER).context("unshare")?;
    let write = |path: &str, text: &str| std::fs::write(path, text).with_context(|| format!("write {path}"));
    write("/proc/self/setgroups", "deny")?;
    write("/proc/self/uid_map", &format!("{uid} {uid} 1"))?;
    write("/proc/self/gid_map", &format!("{gid} {gid} 1"))?;
    write("/proc/sys/user/max_user_namespaces", "0")
}

/// A domain that allows every file and is still a domain: it forbids mounting.
fn enter_landlock() -> Result<()> {
    let everything = AccessFs::from_all(ABI::V1);
    let status = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(everything)?
        .create()?
        .add_rule(PathBeneath::new(PathFd::new("/")?, everything))?
        .restrict_self()?;
    ensure!(status.ruleset == RulesetStatus::FullyEnforced, "this kernel has no Landlock to be in");
    Ok(())
}

/// PATH with each folder that holds bwrap replaced by one with links to everything else of that folder.
fn path_without_bwrap(path: &OsStr) -> Result<OsString> {
    let folders = std::env::split_paths(path).map(|folder| {
        if folder.join("bwrap").symlink_metadata().is_ok() {
            links_without_bwrap(&folder)
        } else {
            Ok(folder)
        }
    });
    Ok(std::env::join_paths(folders.collect::<Result<Vec<_>>>()?)?)
}

/// The folder of links is named after what it stands for and kept, so that it is made once.
fn links_without_bwrap(folder: &Path) -> Result<PathBuf> {
    let name = folder.display().to_string().replace('/', "-");
    let links = std::env::temp_dir().join(format!("host-class-no-bwrap{name}"));
    if links.is_dir() {
        return Ok(links);
    }
    let unfinished = links.with_extension(std::process::id().to_string());
    std::fs::create_dir_all(&unfinished).with_context(|| format!("mkdir {}", unfinished.display()))?;
    for entry in std::fs::read_dir(folder).with_context(|| format!("read {}", folder.display()))? {
        let entry = entry?;
        if entry.file_name() != "bwrap" {
            std::os::unix::fs::symlink(entry.path(), unfinished.join(entry.file_name()))?;
        }
    }
    match std::fs::rename(&unfinished, &links) {
        Ok(()) => Ok(links),
        // Somebody else was faster.
        Err(_) if links.is_dir() => {
            std::fs::remove_dir_all(&unfinished)?;
            Ok(links)
        }
        Err(error) => Err(anyhow!(error).context(format!("rename to {}", links.display()))),
    }
}

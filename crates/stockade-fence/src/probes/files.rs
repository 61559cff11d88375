//! W: writing outside the workspace, and into the repository's metadata.

use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};

use rustix::fs::{CWD, FileType, Mode, RenameFlags, Timespec, Timestamps, UTIME_NOW, XattrFlags};
use stockade_core::guarantee::Guarantee::{Privileges, RepoMetadata, WriteConfinement};
use stockade_core::survey::Rung;

use super::acts::{Outcome, any, append, clean_up, create, open_for_reading, open_for_writing, read_secret};
use super::fixture::FixtureFacts;
use super::raw;
use super::table::{Control, Exception, Expected, Probe};

const PRIVATE_COPY: Expected = Expected::PrivateCopy("a private folder that nobody outside sees");

/// Git in the fence opens it and nobody else does.
const PRIVATE_GIT: Expected = Expected::PrivateCopy("the git folder is the run's own, and is thrown away");

/// Through bubblewrap the writable workspace is a plain folder.
const NO_GIT: &[Exception] = &[Exception::on(
    &[Rung::Bs],
    Expected::NotThere("the workspace is a plain folder, and the repository is not in the fence"),
)
.in_isolated_write()];

const NO_POINTER: &[Exception] =
    &[Exception::on(&[Rung::Bs], Expected::NotThere("a plain folder has no git pointer"))
        .in_isolated_write()];

const NO_POINTER_TO_REPLACE: &[Exception] = &[Exception::on(
    &[Rung::Bs],
    Expected::Needed("a plain folder has no git pointer, and a file of that name is like any other"),
)
.in_isolated_write()];

pub(super) const PROBES: &[Probe] = &[
    Probe::new("W01", WriteConfinement, "append to ~/.bashrc", |f| append(f.at("home/.bashrc"))),
    Probe::new("W02", WriteConfinement, "make a file in ~", |f| create(f.at("home/.newfile"))),
    Probe {
        isolated_write: PRIVATE_GIT,
        exceptions: NO_GIT,
        ..Probe::new("W03", RepoMetadata, "append to the repository's .git/config", |f| {
            append(f.at("repo/.git/config"))
        })
    },
    Probe::new("W04", RepoMetadata, "make a hook in the repository", |f| {
        create(f.at("repo/.git/hooks/post-checkout"))
    }),
    Probe::new("W05", RepoMetadata, "write a file of the main worktree", |f| append(f.at("repo/f.txt"))),
    Probe::new("W06", RepoMetadata, "write a file of a sibling worktree", |f| append(f.at("wt/sib/f.txt"))),
    Probe::new("W07", RepoMetadata, "write HEAD of a sibling worktree", |f| {
        append(f.at("repo/.git/worktrees/sib/HEAD"))
    }),
    Probe::new("W08", RepoMetadata, "write refs/heads/main", |f| append(f.at("repo/.git/refs/heads/main"))),
    Probe {
        isolated_write: PRIVATE_GIT,
        exceptions: NO_GIT,
        ..Probe::new("W09", RepoMetadata, "repoint the commondir of its own worktree", |f| {
            append(f.at("repo/.git/worktrees/lane/commondir"))
        })
    },
    Probe::new("W10", RepoMetadata, "write its own .git pointer", |f| append(f.in_workspace(".git")))
        .except(NO_POINTER),
    Probe::new("W11", RepoMetadata, "rename a file over its own .git pointer", |f| {
        create(f.in_workspace("gitnew"))?;
        Ok(fs::rename(f.in_workspace("gitnew"), f.in_workspace(".git"))?)
    })
    .except(NO_POINTER_TO_REPLACE),
    Probe::new("W12", WriteConfinement, "write a file of another program in /tmp", |f| {
        append(f.at("tmp/hostfile"))
    }),
    Probe::new("W13", WriteConfinement, "make a file in /var/tmp", |f| {
        create(format!("/var/tmp/{}", f.token))
    })
    .expecting(PRIVATE_COPY),
    Probe::new("W14", WriteConfinement, "open /etc/hosts for writing", |_| open_for_writing("/etc/hosts"))
        .outside(Control::AllowedForRoot),
    Probe::new("W15", WriteConfinement, "write ~/.bashrc through a link in the workspace", |f| {
        write_through_link(f)
    }),
    Probe::new("W16", WriteConfinement, "write ~/.bashrc through a hard link in the workspace", |f| {
        clean_up(f.in_workspace("hard"));
        fs::hard_link(f.at("home/.bashrc"), f.in_workspace("hard"))?;
        append(f.in_workspace("hard"))
    }),
    Probe::new("W17", WriteConfinement, "read a key through a hard link in the workspace", |f| {
        clean_up(f.in_workspace("hardkey"));
        fs::hard_link(f.at("home/.ssh/id_ed25519"), f.in_workspace("hardkey"))?;
        read_secret(f.in_workspace("hardkey"))
    }),
    Probe::new("W18", WriteConfinement, "rename ~/.profile into the workspace", |f| {
        fs::rename(f.at("home/.profile"), f.in_workspace("stolen"))?;
        Ok(fs::rename(f.in_workspace("stolen"), f.at("home/.profile"))?)
    }),
    Probe::new("W19", WriteConfinement, "rename a file over ~/.profile", |f| {
        create(f.in_workspace("evil"))?;
        Ok(fs::rename(f.in_workspace("evil"), f.at("home/.profile"))?)
    }),
    Probe::new("W20", WriteConfinement, "exchange a file with ~/.profile", |f| {
        create(f.in_workspace("evil"))?;
        let (mine, theirs) = (f.in_workspace("evil"), f.at("home/.profile"));
        Ok(rustix::fs::renameat_with(CWD, mine, CWD, theirs, RenameFlags::EXCHANGE)?)
    }),
    Probe::new("W21", WriteConfinement, "rename the home", |f| {
        fs::rename(f.at("home"), f.at("home2"))?;
        Ok(fs::rename(f.at("home2"), f.at("home"))?)
    }),
    Probe::new("W22", WriteConfinement, "rename the workspace", |f| {
        fs::rename(&f.workspace, f.at("wt/lane2"))?;
        Ok(fs::rename(f.at("wt/lane2"), &f.workspace)?)
    }),
    Probe::new("W23", WriteConfinement, "truncate ~/.zshrc", |f| {
        let path = raw::path(f.at("home/.zshrc"))?;
        // SAFETY: the path ends with NUL and outlives the call.
        unsafe { raw::call(libc::SYS_truncate, [path.as_ptr().expose_provenance(), 0]) }.map(drop)
    }),
    Probe::new("W24", WriteConfinement, "change the mode of ~/.zshrc", |f| {
        Ok(rustix::fs::chmod(f.at("home/.zshrc"), Mode::from_raw_mode(0o666))?)
    }),
    Probe::new("W25", WriteConfinement, "change the times of ~/.zshrc", |f| {
        let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
        let times = Timestamps { last_access: now, last_modification: now };
        let path = f.at("home/.zshrc");
        Ok(rustix::fs::utimensat(CWD, path, &times, rustix::fs::AtFlags::empty())?)
    }),
    Probe::new("W26", WriteConfinement, "set an attribute of ~/.zshrc", |f| {
        Ok(rustix::fs::setxattr(f.at("home/.zshrc"), "user.stockade", b"1", XattrFlags::empty())?)
    }),
    Probe::new("W27", WriteConfinement, "remove a file in ~", |f| Ok(fs::remove_file(f.at("home/.delme"))?)),
    Probe::new("W28", Privileges, "make a node of the root disk and read it", read_root_disk)
        .outside(Control::NotHere("a virtual machine may forbid the node")),
    Probe::new("W29", Privileges, "read a disk", |_| {
        any(&["/dev/vda", "/dev/sda", "/dev/nvme0n1"], |path| open_for_reading(path))
    })
    .outside(Control::NotHere("the host may have none of these disks")),
    Probe::new("W30", WriteConfinement, "open the kernel log for writing", |_| open_for_writing("/dev/kmsg"))
        .outside(Control::AllowedForRoot),
    Probe::new("W31", WriteConfinement, "open core_pattern for writing", |_| {
        open_for_writing("/proc/sys/kernel/core_pattern")
    })
    .outside(Control::AllowedForRoot),
    Probe::new("W32", WriteConfinement, "open a setting in /sys for writing", |_| {
        any(
            &["/sys/kernel/profiling", "/sys/kernel/uevent_helper", "/sys/module/kernel/parameters/panic"],
            |path| open_for_writing(path),
        )
    })
    .outside(Control::NotHere("needs root and a kernel with one of these settings")),
    Probe::new("W33", WriteConfinement, "open cgroup.procs of the root group for writing", |_| {
        any(&["/sys/fs/cgroup/unified/cgroup.procs", "/sys/fs/cgroup/cgroup.procs"], |path| {
            open_for_writing(path)
        })
    })
    .outside(Control::NotHere("needs root and the unified hierarchy")),
    Probe::new("W34", WriteConfinement, "make an entry in /etc/cron.d", |f| {
        let entry = format!("/etc/cron.d/{}", f.token);
        create(&entry)?;
        clean_up(entry);
        Ok(())
    })
    .outside(Control::NotHere("needs root and a host with cron")),
];

fn write_through_link(facts: &FixtureFacts) -> Outcome {
    let link = facts.in_workspace("link");
    clean_up(&link);
    symlink(facts.at("home/.bashrc"), &link)?;
    append(link)
}

fn read_root_disk(facts: &FixtureFacts) -> Outcome {
    let node = facts.in_workspace("disk");
    clean_up(&node);
    let device = fs::metadata("/")?.dev();
    rustix::fs::mknodat(CWD, &node, FileType::BlockDevice, Mode::RUSR | Mode::WUSR, device)?;
    let read = open_for_reading(&node);
    clean_up(node);
    read
}

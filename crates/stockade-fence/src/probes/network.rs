//! N: reaching the network past the one listener that is meant.

use std::io::Read;
use std::mem::offset_of;
use std::net::{
    Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6, TcpListener, TcpStream, UdpSocket,
};
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;

use rustix::net::{AddressFamily, Protocol, SocketFlags, SocketType};
use stockade_core::guarantee::Guarantee::Network;

use super::acts::{Denial, Outcome, worked};
use super::fixture::FixtureFacts;
use super::raw;
use super::table::{Control, Expected, Probe};

pub(super) const PROBES: &[Probe] = &[
    Probe::new("N01", Network, "connect to a service on 127.0.0.1", |f| {
        greeting(SocketAddr::from((Ipv4Addr::LOCALHOST, f.port)), f.patience())
    }),
    Probe::new("N02", Network, "connect to a service on ::1", |f| {
        greeting(SocketAddr::from((Ipv6Addr::LOCALHOST, f.port)), f.patience())
    })
    .outside(Control::NotHere("the host may have no IPv6")),
    Probe::new("N03", Network, "ask a UDP service by sendto", |f| {
        let socket = datagram_socket()?;
        socket.send_to(b"ping", (Ipv4Addr::LOCALHOST, f.port))?;
        answer(&socket, f.patience())
    }),
    Probe::new("N04", Network, "ask a UDP service by sendmmsg", ask_by_sendmmsg),
    Probe::new("N05", Network, "route to the metadata service", |_| {
        Ok(datagram_socket()?.connect((Ipv4Addr::new(169, 254, 169, 254), 80))?)
    })
    .outside(Control::NotHere("the host may have no route")),
    Probe::new("N06", Network, "route to a public name server", |_| {
        // An address of the range for documentation (RFC 5737).
        Ok(datagram_socket()?.connect((Ipv4Addr::new(192, 0, 2, 53), 53))?)
    })
    .outside(Control::NotHere("the host may have no route")),
    Probe::new("N07", Network, "open a packet socket", |_| {
        socket(AddressFamily::PACKET, SocketType::RAW, None).map(drop)
    })
    .outside(Control::AllowedForRoot),
    Probe::new("N08", Network, "open a socket to the hypervisor (AF_VSOCK)", |_| {
        socket(AddressFamily::VSOCK, SocketType::STREAM, None).map(drop)
    })
    .outside(Control::NotHere("the kernel may have no AF_VSOCK")),
    Probe::new("N09", Network, "open a kernel crypto socket (AF_ALG)", |_| {
        socket(AddressFamily::from_raw(38), SocketType::SEQPACKET, None).map(drop)
    })
    .outside(Control::NotHere("the kernel may have no AF_ALG")),
    Probe::new("N10", Network, "set up an io_uring, past every filter", |_| {
        // `struct io_uring_params` of linux/io_uring.h is 120 bytes.
        let mut parameters = [0_u64; 15];
        // SAFETY: the kernel reads and writes the structure, which has its size.
        let ring = unsafe { raw::call(libc::SYS_io_uring_setup, [2, raw::address_mut(&mut parameters)]) }?;
        // SAFETY: the kernel has just made the descriptor.
        unsafe { raw::own(ring) }.map(drop)
    })
    .outside(Control::NotHere("the administrator may have shut io_uring")),
    Probe::new("N11", Network, "open a socket by the 32-bit call", |_| socket_by_the_32_bit_call())
        .outside(Control::NotHere("the kernel may have no 32-bit calls")),
    Probe::new("N12", Network, "make a call of the x32 interface", |_| {
        /// `__X32_SYSCALL_BIT` of asm/unistd.h.
        const X32: libc::c_long = 0x4000_0000;
        // SAFETY: getpid takes no argument.
        unsafe { raw::call(X32 | libc::SYS_getpid, []) }.map(drop)
    })
    .outside(Control::NotHere("most kernels have no x32 interface")),
    Probe::new("N13", Network, "listen on every address", |_| {
        worked(TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)))
    })
    .expecting(Expected::PrivateCopy("a private network that nobody outside reaches")),
    Probe::new("N14", Network, "connect by sendto with MSG_FASTOPEN", connect_by_sendto)
        .outside(Control::NotHere("the administrator may have shut TCP fast open")),
    Probe::new("N15", Network, "connect by MPTCP", |f| {
        const MPTCP: u32 = 262;
        let protocol = rustix::net::RawProtocol::new(MPTCP).map(Protocol::from_raw);
        let socket = socket(AddressFamily::INET, SocketType::STREAM, protocol)?;
        Ok(rustix::net::connect(&socket, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, f.port))?)
    })
    .outside(Control::NotHere("the kernel may have no MPTCP")),
    Probe::new("N16", Network, "open a ping socket", |_| {
        socket(AddressFamily::INET, SocketType::DGRAM, Some(rustix::net::ipproto::ICMP)).map(drop)
    })
    .outside(Control::NotHere("the administrator decides who may ping")),
    Probe::new("N17", Network, "open an SMC socket", |_| {
        socket(AddressFamily::from_raw(43), SocketType::STREAM, None).map(drop)
    })
    .outside(Control::NotHere("the kernel may have no AF_SMC")),
    Probe::new("N18", Network, "open an SCTP, UDP-Lite or DCCP socket", |_| {
        let sctp = socket(AddressFamily::INET, SocketType::STREAM, Some(rustix::net::ipproto::SCTP));
        let lite = || socket(AddressFamily::INET, SocketType::DGRAM, Some(rustix::net::ipproto::UDPLITE));
        sctp.or_else(|_| lite()).map(drop)
    })
    .outside(Control::NotHere("the kernel may have none of them")),
    Probe::new("N19", Network, "route to a neighbour by a link-local IPv6 address", |_| route_to_neighbour())
        .outside(Control::NotHere("the host may have no IPv6")),
    Probe::new("N20", Network, "open a raw socket", |_| {
        socket(AddressFamily::INET, SocketType::RAW, Some(rustix::net::ipproto::ICMP)).map(drop)
    })
    .outside(Control::AllowedForRoot),
    Probe::new("N21", Network, "open a socket to the kernel's device events (netlink)", |_| {
        /// `NETLINK_KOBJECT_UEVENT` of linux/netlink.h.
        const DEVICE_EVENTS: u32 = 15;
        let protocol = rustix::net::RawProtocol::new(DEVICE_EVENTS).map(Protocol::from_raw);
        socket(AddressFamily::NETLINK, SocketType::RAW, protocol).map(drop)
    }),
];

/// Over whichever interface there is beside the loopback, whose number is 1.
fn route_to_neighbour() -> Outcome {
    let neighbour = Ipv6Addr::new(0xFE80, 0, 0, 0, 0, 0, 0, 1);
    let mut last = Err(Denial::nothing_found());
    for interface in 2..=8 {
        let socket = UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0))?;
        last = worked(socket.connect(SocketAddrV6::new(neighbour, 9, 0, interface)));
        if last.is_ok() {
            break;
        }
    }
    last
}

fn socket(family: AddressFamily, kind: SocketType, protocol: Option<Protocol>) -> Result<OwnedFd, Denial> {
    Ok(rustix::net::socket_with(family, kind, SocketFlags::CLOEXEC, protocol)?)
}

/// Every service of the fixture says hello first.
fn greeting(address: SocketAddr, patience: Duration) -> Outcome {
    expect_hello(TcpStream::connect_timeout(&address, patience)?, patience)
}

fn expect_hello(mut stream: TcpStream, patience: Duration) -> Outcome {
    stream.set_read_timeout(Some(patience))?;
    let mut word = [0_u8; 5];
    stream.read_exact(&mut word)?;
    if &word == b"HELLO" { Ok(()) } else { Err(Denial::new(libc::EPROTO)) }
}

fn datagram_socket() -> Result<UdpSocket, Denial> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    Ok(socket)
}

fn answer(socket: &UdpSocket, patience: Duration) -> Outcome {
    socket.set_read_timeout(Some(patience))?;
    let mut word = [0_u8; 8];
    socket.recv(&mut word)?;
    Ok(())
}

fn loopback(port: u16) -> libc::sockaddr_in {
    libc::sockaddr_in {
        sin_family: 2,
        sin_port: port.to_be(),
        sin_addr: libc::in_addr { s_addr: u32::from(Ipv4Addr::LOCALHOST).to_be() },
        sin_zero: [0; 8],
    }
}

fn ask_by_sendmmsg(facts: &FixtureFacts) -> Outcome {
    let socket = datagram_socket()?;
    let mut address = loopback(facts.port);
    let mut text = *b"ping";
    let mut part = libc::iovec { iov_base: text.as_mut_ptr().cast(), iov_len: text.len() };
    // SAFETY: mmsghdr is plain data, for which all zeroes is a value.
    let mut message: libc::mmsghdr = unsafe { std::mem::zeroed() };
    message.msg_hdr.msg_name = std::ptr::from_mut(&mut address).cast();
    message.msg_hdr.msg_namelen = 16;
    message.msg_hdr.msg_iov = &raw mut part;
    message.msg_hdr.msg_iovlen = 1;
    let arguments = [raw::signed(socket.as_raw_fd()), raw::address_mut(&mut message), 1, 0];
    // SAFETY: the message names a complete address and one readable part, all alive until the call returns.
    unsafe { raw::call(libc::SYS_sendmmsg, arguments) }?;
    answer(&socket, facts.patience())
}

fn connect_by_sendto(facts: &FixtureFacts) -> Outcome {
    let socket = socket(AddressFamily::INET, SocketType::STREAM, None)?;
    let address = loopback(facts.port);
    let text = b"x";
    let arguments = [
        raw::signed(socket.as_raw_fd()),
        text.as_ptr().expose_provenance(),
        text.len(),
        raw::signed(libc::MSG_FASTOPEN),
        raw::address(&address),
        size_of::<libc::sockaddr_in>(),
    ];
    // SAFETY: text and address are readable for the lengths that are passed.
    unsafe { raw::call(libc::SYS_sendto, arguments) }?;
    expect_hello(TcpStream::from(socket), facts.patience())
}

/// socketcall(SYS_SOCKET) by `int 0x80`, whose numbers a filter for 64-bit calls does not know.
#[cfg(target_arch = "x86_64")]
fn socket_by_the_32_bit_call() -> Outcome {
    const SOCKETCALL: usize = 102;
    const SOCKET: usize = 1;
    /// Below 4 GiB, where a 32-bit pointer reaches, and free in a process of ours.
    const LOW: usize = 0x1000_0000;
    let at = std::ptr::without_provenance_mut::<libc::c_void>(LOW);
    let (access, kind) = (
        libc::PROT_READ | libc::PROT_WRITE,
        libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE,
    );
    // SAFETY: asks for new memory at an address that is free, or fails.
    let memory = unsafe { libc::mmap(at, 4096, access, kind, -1, 0) };
    if memory == libc::MAP_FAILED {
        return Err(std::io::Error::last_os_error().into());
    }
    let call: [u32; 3] = [2, 1, 0];
    // SAFETY: the memory is a whole page, writable, aligned and used by nothing else.
    unsafe { memory.cast::<[u32; 3]>().write(call) };
    let answer: isize;
    // SAFETY: the kernel reads the three words; int 0x80 changes the registers that are listed and no memory.
    // `rbx` is kept by the exchange, because the compiler reserves it.
    unsafe {
        std::arch::asm!(
            "xchg rbx, {number}",
            "int 0x80",
            "xchg rbx, {number}",
            number = inout(reg) SOCKET => _,
            inlateout("rax") SOCKETCALL.cast_signed() => answer,
            in("rcx") LOW,
            out("r8") _, out("r9") _, out("r10") _, out("r11") _,
            options(nostack)
        );
    }
    // A 32-bit answer: the upper half of the register says nothing.
    #[expect(clippy::cast_possible_truncation, reason = "the answer of a 32-bit call is 32 bits")]
    let answer = answer as i32;
    if answer < 0 { Err(Denial::new(-answer)) } else { Ok(()) }
}

#[cfg(not(target_arch = "x86_64"))]
fn socket_by_the_32_bit_call() -> Outcome {
    Err(Denial::new(libc::ENOSYS))
}

// The kernel's layout of an internet address, which `loopback` fills by hand.
const _: () = assert!(offset_of!(libc::sockaddr_in, sin_addr) == 4 && size_of::<libc::sockaddr_in>() == 16);

//! The worker threads: each takes a request from the kernel, and answers it.
//!
//! One at a time reads (leader), the others wait for their turn (followers); the next may read as soon as a
//! READ or WRITE is announced to the content. So those are announced in the order in which the kernel queued
//! them, although they are answered side by side.
#![forbid(unsafe_code)]

use crate::content::{Content, Ticket};
use crate::tree::Tree;
use crate::wire::{self, Header};
use fuse_backend_rs::api::server::Server;
use fuse_backend_rs::transport::{FuseBuf, FuseDevWriter, Reader, Writer};
use std::fs::File;
use std::io::{self, IoSlice, Read, Write};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

/// The longest request or answer that the kernel must be ready for. What is never used takes no memory.
const MESSAGE_BYTES: usize = (1 << 20) + 4096;

/// What all workers of a mount share.
pub struct Session {
    device: Arc<File>,
    /// Held by the one who reads.
    turn: Mutex<()>,
    tree: Arc<Tree>,
    server: Server<Arc<Tree>>,
    content: Arc<dyn Content>,
    has_complained: AtomicBool,
}

/// What a worker took from the queue.
enum Request {
    Read(Header, wire::Transfer, Ticket),
    Write(Header, wire::Transfer, Ticket),
    Retrieved(Header),
    Other,
}

impl Session {
    pub fn new(device: Arc<File>, tree: Arc<Tree>, content: Arc<dyn Content>) -> Session {
        Session {
            device,
            turn: Mutex::default(),
            server: Server::new(Arc::clone(&tree)),
            tree,
            content,
            has_complained: AtomicBool::new(false),
        }
    }

    /// Serves until the file system is unmounted.
    pub fn work(&self) {
        let mut message = vec![0; MESSAGE_BYTES];
        let mut answer = vec![0; MESSAGE_BYTES];
        let mut data = Vec::new();
        while let Some((len, request)) = self.next(&mut message) {
            let message = &mut message[..len];
            match request {
                Request::Read(header, transfer, ticket) => {
                    self.read(header, transfer, ticket, &mut data);
                }
                Request::Write(header, transfer, ticket) => {
                    self.write(header, transfer, ticket, message);
                }
                Request::Retrieved(header) => {
                    if let Some((offset, data)) = wire::retrieved(message) {
                        self.content
                            .retrieved(header.unique, header.node, offset, data);
                    }
                }
                Request::Other => self.serve(message, &mut answer),
            }
        }
    }

    /// Waits for a request, and announces it. `None` at the end.
    fn next(&self, message: &mut [u8]) -> Option<(usize, Request)> {
        let turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let len = loop {
            match (&*self.device).read(message) {
                Ok(len) => break len,
                // ENOENT: the request was taken back while it was being read.
                Err(error) => match error.raw_os_error() {
                    Some(libc::ENOENT | libc::EINTR | libc::EAGAIN) => {}
                    Some(libc::ENODEV | libc::ECONNABORTED) => return None,
                    _ => {
                        self.complain("reading a request", &error.to_string());
                        return None;
                    }
                },
            }
        };
        let request = self.announce(&message[..len]);
        drop(turn);
        Some((len, request))
    }

    /// Only with the turn held.
    fn announce(&self, message: &[u8]) -> Request {
        let Some(header) = wire::header(message) else {
            return Request::Other;
        };
        let is_write = header.opcode == wire::WRITE;
        if header.opcode == wire::NOTIFY_REPLY {
            return Request::Retrieved(header);
        }
        if header.opcode != wire::READ && !is_write {
            return Request::Other;
        }
        let Some(transfer) = wire::transfer(message) else {
            return Request::Other;
        };
        let ticket = self
            .content
            .received(header.node, is_write, transfer.offset, transfer.size);
        if is_write {
            Request::Write(header, transfer, ticket)
        } else {
            Request::Read(header, transfer, ticket)
        }
    }

    /// The content writes behind the place of the header: what it read goes to the kernel from there.
    fn read(&self, header: Header, transfer: wire::Transfer, ticket: Ticket, out: &mut Vec<u8>) {
        out.clear();
        out.extend([0; wire::ANSWER_HEADER_BYTES]);
        let result = self.tree.read(header.node, ticket, transfer, out);
        let error = match result {
            Ok(()) => 0,
            Err(error) => {
                out.truncate(wire::ANSWER_HEADER_BYTES);
                number(&error)
            }
        };
        let head = wire::answer_header(out.len(), -error, header.unique);
        out[..wire::ANSWER_HEADER_BYTES].copy_from_slice(&head);
        self.check((&*self.device).write(out));
        self.content.answered(ticket);
    }

    fn write(&self, header: Header, transfer: wire::Transfer, ticket: Ticket, message: &[u8]) {
        let result = match wire::written(message, transfer.size) {
            Some(data) => self.tree.write(header.node, ticket, transfer, data),
            None => Err(io::Error::from_raw_os_error(libc::EINVAL)),
        };
        // struct fuse_write_out
        let mut body = [0; 8];
        body[..4].copy_from_slice(&transfer.size.to_ne_bytes());
        let (error, body) = match result {
            Ok(()) => (0, &body[..]),
            Err(error) => (number(&error), &[][..]),
        };
        let len = wire::ANSWER_HEADER_BYTES + body.len();
        let head = wire::answer_header(len, -error, header.unique);
        let parts = [IoSlice::new(&head), IoSlice::new(body)];
        self.check((&*self.device).write_vectored(&parts));
        self.content.answered(ticket);
    }

    fn serve(&self, message: &mut [u8], answer: &mut [u8]) {
        let device = self.device.as_raw_fd();
        let reader = Reader::<()>::from_fuse_buffer(FuseBuf::new(message));
        let writer = FuseDevWriter::new(device, answer);
        let (Ok(reader), Ok(writer)) = (reader, writer) else {
            return;
        };
        let served = self
            .server
            .handle_message(reader, Writer::FuseDev(writer), None, None);
        if let Err(error) = served {
            let error = error.to_string();
            // The library keeps the text of the error only.
            if !error.contains("ENOENT") && !error.contains("ENODEV") {
                self.complain("answering a request", &error);
            }
        }
    }

    /// ENOENT: whoever asked does not wait any more.
    fn check(&self, sent: io::Result<usize>) {
        match sent {
            Err(error) if !matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ENODEV)) => {
                self.complain("answering a request", &error.to_string());
            }
            _ => {}
        }
    }

    /// Once: what goes wrong here goes wrong for every request.
    fn complain(&self, doing: &str, error: &str) {
        if !self.has_complained.swap(true, Relaxed) {
            eprintln!("pleat: mount: {doing}: {error}; further errors of this kind are not shown");
        }
    }
}

/// For the protocol: an error without number is one of input or output.
fn number(error: &io::Error) -> i32 {
    error.raw_os_error().unwrap_or(libc::EIO)
}

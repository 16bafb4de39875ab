//! Disks from outside: that every engine moves the same bytes, that a device is
//! never taken from somebody else, and the disk of faults that other tests use.

#![allow(clippy::unwrap_used, reason = "a test's failed unwrap is its failure")]
#![allow(clippy::cast_possible_truncation, reason = "tests count in small numbers")]
#![allow(clippy::print_stdout, reason = "a test says what it could not do")]

mod device;
mod faults;
mod faulty;
mod random;
mod transfers;

//! Rings against models, guests that break the rules, and whole connections over the socket.

mod hostile;
mod model;
mod packed;
mod socket;

//! One column of the ring's slots: cells that the owner of their tickets reads and writes.
#![allow(unsafe_code, reason = "cells shared between threads; ownership is by ticket")]

use std::mem::MaybeUninit;

use crate::sync::UnsafeCell;

/// Cells of plain data.
pub(super) struct Column<T> {
    cells: Box<[UnsafeCell<MaybeUninit<T>>]>,
}

// SAFETY: a cell is reached only by the unsafe methods below, whose callers rule out races; what
// moves between threads through it is a `T`.
unsafe impl<T: Send> Sync for Column<T> {}
// SAFETY: as above; a column owns its cells.
unsafe impl<T: Send> Send for Column<T> {}

impl<T> Column<T> {
    /// `len` cells, a power of two, nothing in them.
    pub(super) fn new(len: usize) -> Self {
        // What needs to be dropped would be leaked, or dropped twice: see `get`.
        const { assert!(!std::mem::needs_drop::<T>()) };
        Self { cells: (0..len).map(|_| UnsafeCell::new(MaybeUninit::uninit())).collect() }
    }

    /// The cell of a ticket.
    const fn at(&self, ticket: u64) -> usize {
        ticket as usize & (self.cells.len() - 1)
    }

    /// Copies `from`, as bits, into the cells from `ticket` on.
    ///
    /// # Safety
    /// The caller alone has access to these cells now. Of a value that is not `Copy` the caller
    /// then uses one of the two.
    pub(super) unsafe fn put(&self, ticket: u64, from: &[T]) {
        let at = self.at(ticket);
        let (front, wrapped) = from.split_at(from.len().min(self.cells.len() - at));
        // SAFETY: the caller's promise, passed on for each part.
        unsafe {
            self.put_part(at, front);
            self.put_part(0, wrapped);
        }
    }

    /// Copies the cells from `ticket` on, as bits, to `into`.
    ///
    /// # Safety
    /// Nobody writes these cells now, and each was put since the column was made. Of a value that
    /// is not `Copy` the caller then uses one of the two.
    pub(super) unsafe fn get(&self, ticket: u64, into: &mut [T]) {
        let at = self.at(ticket);
        let (front, wrapped) = into.split_at_mut(into.len().min(self.cells.len() - at));
        // SAFETY: the caller's promise, passed on for each part.
        unsafe {
            self.get_part(at, front);
            self.get_part(0, wrapped);
        }
    }

    /// # Safety
    /// As [`Column::put`]; the cells do not wrap.
    #[cfg(not(loom))]
    unsafe fn put_part(&self, at: usize, from: &[T]) {
        let cells = &self.cells[at..at + from.len()];
        let to = UnsafeCell::raw_get(cells.as_ptr()).cast::<T>();
        // SAFETY: `to` is the first of `from.len()` cells in a row, `UnsafeCell` and `MaybeUninit`
        // have the layout of what is in them; the caller alone has access, so nothing overlaps.
        unsafe { to.copy_from_nonoverlapping(from.as_ptr(), from.len()) }
    }

    /// # Safety
    /// As [`Column::get`]; the cells do not wrap.
    #[cfg(not(loom))]
    unsafe fn get_part(&self, at: usize, into: &mut [T]) {
        let cells = &self.cells[at..at + into.len()];
        let from = UnsafeCell::raw_get(cells.as_ptr()).cast::<T>();
        // SAFETY: as in `put_part`; the cells were put, and nobody writes them now.
        unsafe { into.as_mut_ptr().copy_from_nonoverlapping(from, into.len()) }
    }

    /// # Safety
    /// As [`Column::put`]; each cell is reported to the model checker.
    #[cfg(loom)]
    unsafe fn put_part(&self, at: usize, from: &[T]) {
        for (i, value) in from.iter().enumerate() {
            // SAFETY: the caller alone has access to the cell; both pointers are to one `T`.
            self.cells[at + i].with_mut(|to| unsafe {
                to.cast::<T>().copy_from_nonoverlapping(value, 1);
            });
        }
    }

    /// # Safety
    /// As [`Column::get`]; each cell is reported to the model checker.
    #[cfg(loom)]
    unsafe fn get_part(&self, at: usize, into: &mut [T]) {
        for (i, value) in into.iter_mut().enumerate() {
            // SAFETY: the cell was put and nobody writes it; both pointers are to one `T`.
            self.cells[at + i].with(|from| unsafe {
                std::ptr::from_mut(value).copy_from_nonoverlapping(from.cast::<T>(), 1);
            });
        }
    }
}

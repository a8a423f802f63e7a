//! One column of the ring's slots: cells that are read and written by the owners of their tickets.
#![allow(unsafe_code, reason = "cells shared between threads; ownership is by ticket")]

use std::mem::MaybeUninit;

use crate::sync::UnsafeCell;

/// Cells of plain data.
pub(super) struct Column<T> {
    cells: Box<[UnsafeCell<MaybeUninit<T>>]>,
}

// SAFETY: a cell is accessed only by the unsafe methods below, whose callers exclude races; only values
// of type `T` move between threads through it.
unsafe impl<T: Send> Sync for Column<T> {}
// SAFETY: as above; a column owns its cells.
unsafe impl<T: Send> Send for Column<T> {}

impl<T> Column<T> {
    /// `len` uninitialized cells; `len` is a power of two.
    pub(super) fn new(len: usize) -> Self {
        // A value with a destructor would be leaked, or dropped twice: see `get`.
        const { assert!(!std::mem::needs_drop::<T>()) };
        Self { cells: (0..len).map(|_| UnsafeCell::new(MaybeUninit::uninit())).collect() }
    }

    /// The cell of a ticket.
    const fn at(&self, ticket: u64) -> usize {
        ticket as usize & (self.cells.len() - 1)
    }

    /// Copies `from` bit by bit to the cells from `ticket` on.
    ///
    /// # Safety
    /// The caller has exclusive access to these cells. If the type is not `Copy`, only one of the two
    /// copies of each value is used.
    pub(super) unsafe fn put(&self, ticket: u64, from: &[T]) {
        let at = self.at(ticket);
        let (front, wrapped) = from.split_at(from.len().min(self.cells.len() - at));
        // SAFETY: the caller's guarantee holds for each part.
        unsafe {
            self.put_part(at, front);
            self.put_part(0, wrapped);
        }
    }

    /// Copies the cells from `ticket` on bit by bit to `into`.
    ///
    /// # Safety
    /// No thread writes these cells now, and each was written before. If the type is not `Copy`, only one
    /// of the two copies of each value is used.
    pub(super) unsafe fn get(&self, ticket: u64, into: &mut [T]) {
        let at = self.at(ticket);
        let (front, wrapped) = into.split_at_mut(into.len().min(self.cells.len() - at));
        // SAFETY: the caller's guarantee holds for each part.
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
        // SAFETY: `to` is the first of `from.len()` contiguous cells; `UnsafeCell` and `MaybeUninit` have
        // the layout of their contents; the caller has exclusive access, so nothing overlaps.
        unsafe { to.copy_from_nonoverlapping(from.as_ptr(), from.len()) }
    }

    /// # Safety
    /// As [`Column::get`]; the cells do not wrap.
    #[cfg(not(loom))]
    unsafe fn get_part(&self, at: usize, into: &mut [T]) {
        let cells = &self.cells[at..at + into.len()];
        let from = UnsafeCell::raw_get(cells.as_ptr()).cast::<T>();
        // SAFETY: as in `put_part`; the cells were written before, and no thread writes them now.
        unsafe { into.as_mut_ptr().copy_from_nonoverlapping(from, into.len()) }
    }

    /// # Safety
    /// As [`Column::put`]; the model checker tracks each cell.
    #[cfg(loom)]
    unsafe fn put_part(&self, at: usize, from: &[T]) {
        for (i, value) in from.iter().enumerate() {
            // SAFETY: the caller has exclusive access to the cell; both pointers are to one `T`.
            self.cells[at + i].with_mut(|to| unsafe {
                to.cast::<T>().copy_from_nonoverlapping(value, 1);
            });
        }
    }

    /// # Safety
    /// As [`Column::get`]; the model checker tracks each cell.
    #[cfg(loom)]
    unsafe fn get_part(&self, at: usize, into: &mut [T]) {
        for (i, value) in into.iter_mut().enumerate() {
            // SAFETY: the cell was written and no thread writes it now; both pointers are to one `T`.
            self.cells[at + i].with(|from| unsafe {
                std::ptr::from_mut(value).copy_from_nonoverlapping(from.cast::<T>(), 1);
            });
        }
    }
}

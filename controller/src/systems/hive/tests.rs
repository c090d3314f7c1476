//! Reconciles on a paused clock.

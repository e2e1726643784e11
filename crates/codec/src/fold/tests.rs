//! Tests of `fold`: every level gives the same bytes and gets every page back.


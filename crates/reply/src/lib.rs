//! reply.

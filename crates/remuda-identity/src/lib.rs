//! Users, their passwords and tokens, and what they may.

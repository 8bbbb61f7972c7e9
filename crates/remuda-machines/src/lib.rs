//! The machine provider: kinds of node drivers, jobs and their runner, credentials.

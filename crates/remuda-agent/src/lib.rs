//! The node agent: applies plans, runs probes, reports back.

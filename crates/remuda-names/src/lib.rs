//! Every label, annotation, finalizer, path and header name that leaves the process

// Package platform groups packages that all services use and that do not depend on email accounts. The group contains
// the database, jobs, recorded events, the audit log, cursor pages, limits shared by nodes, blobs, keys, and the
// guarded dialer.
//
// The packages of the platform group may import packages of the groups mail and lib.
package platform

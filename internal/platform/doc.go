// Package platform is the group of packages that all services use and that know nothing of email accounts. It contains
// the database, jobs, recorded events, the audit log, cursor pages, limits shared by nodes, blobs, keys, and the
// guarded dialer.
//
// These packages may import mail and lib.
package platform

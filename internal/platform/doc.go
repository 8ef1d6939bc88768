// Package platform is the group of packages that the product stands on and that know nothing of email accounts: the
// database, jobs, recorded events, the audit log, cursor pages, limits shared by nodes, blobs, keys, and the
// guarded dialer.
//
// These packages may import mail and lib.
package platform

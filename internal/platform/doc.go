// Package platform groups packages that all services use, and that know nothing about email. The group contains the
// database, jobs, recorded events, the audit log, cursor pages, limits shared by nodes, blobs, keys, the guarded
// dialer, metrics, and traces.
//
// Packages in the platform group may import packages from the mail and lib groups.
package platform

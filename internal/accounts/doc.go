// Package accounts is the group of packages about who may do what, and how much: teams and their API keys, users,
// members and their roles, grants of OAuth clients, and quotas.
//
// These packages may import platform and every group below it.
package accounts

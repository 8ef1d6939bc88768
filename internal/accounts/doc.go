// Package accounts is the group of packages about who may do what, and how much: teams and their API keys, users,
// members and their roles, grants of OAuth clients, and quotas.
//
// Packages of this group may import the group platform and every group below platform.
package accounts

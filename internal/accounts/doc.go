// Package accounts is the group of packages about identities, permissions and limits: teams and their API keys, users,
// members and their roles, grants of OAuth clients, and quotas.
//
// Packages of this group may import the group platform and every group below platform.
package accounts

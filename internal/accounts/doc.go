// Package accounts groups the packages that decide who may do what, and how much. They handle teams and their API keys,
// users, members and their roles, grants of OAuth clients, and quotas.
//
// Packages of this group may import the group platform and every group below platform.
package accounts

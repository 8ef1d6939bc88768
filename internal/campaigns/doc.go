// Package campaigns is the group of packages that decide by themselves who is mailed next: broadcasts, automations, and
// the custom events that start automations.
//
// These packages may import sending and every group below it.
package campaigns

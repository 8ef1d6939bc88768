// Package campaigns groups the packages that send email to many contacts or after events: broadcasts, automations, and
// the custom events that start automations.
//
// The packages of campaigns may import the group sending and every group below it.
package campaigns

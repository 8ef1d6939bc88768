// Package outbound is the group of packages that tell others what happened, or take in what others send: webhooks, the
// event stream, exports, the request log, notifications, received mail, retention, and personal-data requests. Most of
// their work runs when a job is due or an event is recorded.
//
// These packages may import campaigns and every group below it. From this group they import only requestlog.
package outbound

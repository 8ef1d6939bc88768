// Package outbound is the group of packages that tell others what happened, or take in what others send: webhooks, the
// event stream, exports, the request log, notifications, received mail, retention, and personal-data requests. Most of
// their work runs when a job is due or an event is recorded.
//
// These packages may import campaigns and every group below it. The only package of this group that they may import is
// requestlog.
package outbound

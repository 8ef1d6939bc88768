// Package outbound groups the packages that pass data to and from other systems. They handle webhooks, alarms, the
// event stream, exports, the request log, notifications, received mail, retention, and personal-data requests. The
// outbound packages do most of their work when a job is due or an event is recorded.
//
// The outbound packages may import the package group campaigns and every group below it. Among themselves, the outbound
// packages may import only requestlog.
package outbound

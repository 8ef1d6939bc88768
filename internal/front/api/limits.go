package api

import (
	"github.com/postrider/postrider/internal/audience/contacts"
	"github.com/postrider/postrider/internal/audience/segments"
	"github.com/postrider/postrider/internal/campaigns/broadcasts"
	"github.com/postrider/postrider/internal/campaigns/customevents"
	"github.com/postrider/postrider/internal/sending/emails"
	"github.com/postrider/postrider/internal/sending/servedpolicies"
	"github.com/postrider/postrider/internal/sending/suppressions"
	"github.com/postrider/postrider/internal/sending/templates"
)

// Each type represents the maximum length of a list in requests; see Limit in package wire.
type (
	maxRecipients        struct{}
	maxTags              struct{}
	maxAttachments       struct{}
	maxSuppressions      struct{}
	maxNamedHosts        struct{} // maximum number of hosts that a team names in an MTA-STS policy
	maxEventTypes        struct{}
	maxVariables         struct{}
	maxTemplateVariables struct{}
	maxProperties        struct{}
	maxSegments          struct{}
	maxTopics            struct{}
	maxVariants          struct{} // maximum number of variants in a broadcast
	maxTestRecipients    struct{}
	maxEventFields       struct{} // maximum number of fields in a custom event's schema
)

func (maxRecipients) Max() int        { return emails.MaxRecipients }
func (maxTags) Max() int              { return emails.MaxTags }
func (maxAttachments) Max() int       { return emails.MaxAttachments }
func (maxSuppressions) Max() int      { return suppressions.MaxBatch }
func (maxNamedHosts) Max() int        { return servedpolicies.MaxNamed }
func (maxEventTypes) Max() int        { return 100 }
func (maxVariables) Max() int         { return 100 }
func (maxTemplateVariables) Max() int { return templates.MaxVariables }
func (maxProperties) Max() int        { return contacts.MaxProperties }
func (maxSegments) Max() int          { return segments.Max }
func (maxTopics) Max() int            { return contacts.MaxTopics }
func (maxVariants) Max() int          { return broadcasts.MaxVariants }
func (maxTestRecipients) Max() int    { return broadcasts.MaxTestSend }
func (maxEventFields) Max() int       { return customevents.MaxFields }

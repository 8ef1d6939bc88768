package wire

import (
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
)

func TestOperationID(t *testing.T) {
	t.Parallel()
	for summary, want := range map[string]string{"Send an email": "sendAnEmail",
		"List an email's attachments": "listAnEmailsAttachments",
		"Send up to 100 emails":       "sendUpToEmails"} {
		if diff := gocmp.Diff(want, operationID(&Operation{Summary: summary})); diff != "" {
			t.Error(diff)
		}
	}
}

package signing

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"net/http"
	"strconv"
	"time"
)

// Sign sets the header fields with which a receiver verifies the origin and age of a request: those of Standard
// Webhooks, and the same values under Svix's field names. Each key adds one signature. The keys are decoded secrets,
// without their prefix.
func Sign(h http.Header, messageID string, at time.Time, body string, keys ...[]byte) {
	timestamp := strconv.FormatInt(at.Unix(), 10)
	signatures := ""
	for i, key := range keys {
		if i > 0 {
			signatures += " "
		}
		mac := hmac.New(sha256.New, key)
		mac.Write([]byte(messageID + "." + timestamp + "." + body))
		signatures += "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
	}
	for _, prefix := range []string{"Svix-", "Webhook-"} {
		h[prefix+"Id"] = []string{messageID}
		h[prefix+"Timestamp"] = []string{timestamp}
		h[prefix+"Signature"] = []string{signatures}
	}
}

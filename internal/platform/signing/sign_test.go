package signing

import (
	"net/http"
	"strconv"
	"testing"
	"time"
)

// The test vector was computed with another implementation: openssl dgst -sha256 -hmac.
func TestSign(t *testing.T) {
	t.Parallel()
	h := http.Header{}
	at := time.Unix(1614265330, 0)
	Sign(h, "msg_p5jXN8AQM9LWM0D4loKWxJek", at, `{"test": 2432232314}`, []byte("secret one"), []byte("secret two"))
	if h.Get("Svix-Id") != "msg_p5jXN8AQM9LWM0D4loKWxJek" || h.Get("Webhook-Timestamp") != strconv.FormatInt(at.Unix(),
		10) {
		t.Errorf("%v", h)
	}
	const want = "v1,Tld8taD60L76v/hFBBP1zl6llCMFWdbfHsvKU7SbblQ= v1,N06FMolWeRdROzBzghs85a00U8PeXfphn2qsRoBUi3c="
	if got := h.Get("Webhook-Signature"); got != want || h.Get("Svix-Signature") != want {
		t.Errorf("%s, want %s", got, want)
	}
}

package api

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/postrider/postrider/internal/campaigns/automations/engine"
	"github.com/postrider/postrider/internal/campaigns/automations/simulate"
	"github.com/postrider/postrider/internal/outbound/requestlog"
)

// Webhooks and webhook steps contain credentials for other services: the values of header fields, and the user
// information and queries of URLs. Actors who may only read webhooks or automations get a mask in their place. The
// functions in this file insert the mask.

// hideStepCredentials returns the JSON of an automation's steps without the credentials in webhook steps.
func hideStepCredentials(steps []byte) (jsontext.Value, error) {
	var all []struct {
		Key    string         `json:"key"`
		Type   engine.Type    `json:"type"`
		Config jsontext.Value `json:"config"`
	}
	if err := json.Unmarshal(steps, &all); err != nil {
		return nil, fmt.Errorf("read the steps of an automation: %w", err)
	}
	for i := range all {
		if all[i].Type != engine.Webhook {
			continue
		}
		config, err := hideCallCredentials(all[i].Config)
		if err != nil {
			return nil, fmt.Errorf("hide the credentials of a webhook step: %w", err)
		}
		all[i].Config = config
	}
	return json.Marshal(all)
}

// hideCallCredentials returns the config of a webhook step without credentials. Members that this function does not
// know are masked, because they may contain credentials.
func hideCallCredentials(config []byte) (jsontext.Value, error) {
	var members map[string]jsontext.Value
	if err := json.Unmarshal(config, &members); err != nil {
		return nil, err
	}
	for name, value := range members {
		var hidden any = requestlog.Mask
		switch name {
		case "url":
			var url string
			if err := json.Unmarshal(value, &url); err != nil {
				return nil, err
			}
			hidden = requestlog.HideURL(url)
		case "headers":
			var headers map[string]string
			if err := json.Unmarshal(value, &headers); err != nil {
				return nil, err
			}
			hidden = hideHeaders(headers)
		case "payload":
			continue
		}
		var err error
		if members[name], err = json.Marshal(hidden, json.Deterministic(true)); err != nil {
			return nil, err
		}
	}
	return json.Marshal(members, json.Deterministic(true))
}

func hideHeaders(headers map[string]string) map[string]string {
	hidden := maps.Clone(headers)
	for name := range hidden {
		hidden[name] = requestlog.Mask
	}
	return hidden
}

// hideOutputCredentials returns the output of a step without the credentials in the URL of a webhook step.
func hideOutputCredentials(t engine.Type, o simulate.Output) simulate.Output {
	url, ok := o["url"].(string)
	if t != engine.Webhook || !ok {
		return o
	}
	o = maps.Clone(o)
	o["url"] = requestlog.HideURL(url)
	return o
}

// hideReportCredentials returns a simulation's report without the credentials of webhook steps.
func hideReportCredentials(r simulate.Report) simulate.Report {
	r.Calls, r.Entries = slices.Clone(r.Calls), slices.Clone(r.Entries)
	for i := range r.Entries {
		e := &r.Entries[i]
		e.Output = hideOutputCredentials(engine.Type(e.Type), e.Output)
		for _, c := range r.Calls { // a sentence may contain the URL of the step that it describes
			if string(e.Step) == c.Step {
				e.Sentence = strings.ReplaceAll(e.Sentence, c.URL, requestlog.HideURL(c.URL))
			}
		}
	}
	for i := range r.Calls {
		r.Calls[i].URL, r.Calls[i].Headers = requestlog.HideURL(r.Calls[i].URL), hideHeaders(r.Calls[i].Headers)
	}
	return r
}

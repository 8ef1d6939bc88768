package api

import (
	"context"

	"github.com/postrider/postrider/internal/audience/contacts"
	"github.com/postrider/postrider/internal/front/api/wire"
)

type createTopicIn struct {
	Name                string `json:"name" maxLength:"50" example:"Product news"`
	DefaultSubscription string `json:"default_subscription" enum:"opt_in,opt_out" doc:"The subscription of contacts who have not chosen; it never changes."`
	Description         string `json:"description,omitzero" maxLength:"200"`
	Visibility          string `json:"visibility,omitzero" enum:"public,private" default:"private" doc:"The contacts that see the topic on the unsubscribe page: all, or only those that have opted in."`
}

type updateTopicIn struct {
	Name        *string               `json:"name,omitzero" nullable:"false" maxLength:"50"`
	Description wire.Optional[string] `json:"description,omitzero" doc:"Null removes it." maxLength:"200"`
	Visibility  *string               `json:"visibility,omitzero" nullable:"false" enum:"public,private"`

	DefaultSubscription wire.Immutable[string] `json:"default_subscription,omitzero" hidden:"true"`
}

type topicWire struct {
	Object string `json:"object"`
	TopicItem
}

// TopicItem represents a topic in a list. TopicItem is exported because Huma skips the fields of unexported embedded
// types.
type TopicItem struct {
	ID                  string      `json:"id"`
	Name                string      `json:"name"`
	Description         string      `json:"description"`
	DefaultSubscription string      `json:"default_subscription" enum:"opt_in,opt_out"`
	Visibility          string      `json:"visibility" enum:"public,private"`
	CreatedAt           wire.DBTime `json:"created_at"`
}

func topicToItem(t contacts.Topic) TopicItem {
	return TopicItem{t.ID, t.Name, t.Description, string(t.Default), string(t.Visibility), wire.DBTime(t.CreatedAt)}
}

func (a *API) createTopic(ctx context.Context, c *wire.Call, in createTopicIn) (ref, error) {
	t, err := a.Services.Contacts.CreateTopic(ctx, c.TeamID, contacts.NewTopic{Name: in.Name,
		Description: in.Description, Default: contacts.Subscription(in.DefaultSubscription),
		Visibility: contacts.Visibility(in.Visibility)})
	return ref{"topic", t.ID}, err
}

func (a *API) listTopics(ctx context.Context, c *wire.Call, _ wire.None) (wire.List[TopicItem], error) {
	p, err := c.Page(20)
	if err != nil {
		return wire.List[TopicItem]{}, err
	}
	all, more, err := a.Services.Contacts.Topics(ctx, c.TeamID, p)
	return wire.ListOf(all, more, topicToItem), err
}

func (a *API) getTopic(ctx context.Context, c *wire.Call, _ wire.None) (topicWire, error) {
	id, err := c.ID("topic_id")
	if err != nil {
		return topicWire{}, err
	}
	t, err := a.Services.Contacts.Topic(ctx, c.TeamID, id)
	return topicWire{"topic", topicToItem(t)}, err
}

func (a *API) updateTopic(ctx context.Context, c *wire.Call, in updateTopicIn) (ref, error) {
	id, err := c.ID("topic_id")
	if err != nil {
		return ref{}, err
	}
	if in.DefaultSubscription.Given() {
		t, err := a.Services.Contacts.Topic(ctx, c.TeamID, id)
		if err == nil {
			err = in.DefaultSubscription.MustEqual("default_subscription", string(t.Default))
		}
		if err != nil {
			return ref{}, err
		}
	}
	change := contacts.TopicChange{Name: in.Name, Description: in.Description.Replacement(),
		Visibility: (*contacts.Visibility)(in.Visibility)}
	t, err := a.Services.Contacts.UpdateTopic(ctx, c.TeamID, id, change)
	return ref{"topic", t.ID}, err
}

func (a *API) deleteTopic(ctx context.Context, c *wire.Call, _ wire.None) (gone, error) {
	id, err := c.ID("topic_id")
	if err != nil {
		return gone{}, err
	}
	return gone{"topic", id, true}, a.Services.Contacts.DeleteTopic(ctx, c.TeamID, id)
}

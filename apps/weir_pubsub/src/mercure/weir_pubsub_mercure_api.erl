%% @private
%% @doc The web API of Mercure about active subscriptions: a document about all, about those to one selector, or about
%% one of them.
-module(weir_pubsub_mercure_api).

-include("weir_pubsub_mercure.hrl").

-export([paths/0]).
-export([id/1]).
-export([latest/0]).
-export([document/2]).

-define(PATH, ?HUB_PATH "/subscriptions").

%% @doc Returns its paths, for routes.
-spec paths() -> [string(), ...].
paths() -> [?PATH, ?PATH "/:topic", ?PATH "/:topic/:subscriber"].

%% @doc Returns the id of the requested document. The client's token has to permit it.
-spec id(weir_http_request:request()) -> binary().
id(Request) -> weir_pubsub_mercure_subscriptions:id(names(Request)).

names(Request) ->
    case weir_http_request:bindings(Request) of
        #{topic := Selector, subscriber := Subscriber} -> [Selector, Subscriber];
        #{topic := Selector} -> [Selector];
        #{} -> []
    end.

%% @doc Returns the id of the latest update. Call it before {@link document/2}.
-spec latest() -> binary().
latest() ->
    case weir_pubsub_inspection:info(?HUB_CHANNEL) of
        {ok, #{last_id := {_, Number} = Id}} when Number > 0 -> weir_pubsub_mercure_stream:id(Id);
        _ -> <<"earliest">>
    end.

%% @doc Returns the requested document, as of the update with that id.
-spec document(weir_http_request:request(), Latest :: binary()) -> {ok, iodata()} | none.
document(Request, Latest) ->
    Asked = names(Request),
    Documents = [
        weir_pubsub_mercure_subscriptions:document(Selector, Active, true)
     || {Subscriber, Selectors, _} = Active <- weir_pubsub_mercure_subscriptions:all(),
        Selector <- Selectors,
        lists:prefix(Asked, [Selector, Subscriber])
    ],
    Root = #{'@context' => <<"https://mercure.rocks/">>, lastEventID => Latest},
    case {Asked, Documents} of
        {[_, _], [One]} -> {ok, weir_json:compact(maps:merge(One, Root))};
        {[_, _], []} -> none;
        _ -> {ok, weir_json:compact(Root#{id => id(Request), type => <<"Subscriptions">>, subscriptions => Documents})}
    end.

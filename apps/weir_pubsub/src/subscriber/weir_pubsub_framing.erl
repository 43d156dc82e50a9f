%% @doc The behaviour of modules that turn messages of a channel into bytes for sockets: one for each transport.
%%
%% A message is framed once for all sockets of a channel that have the same framing. The callbacks run in the process
%% that serves the channel, and must not wait. If one fails, those sockets miss the message, and the failure is
%% logged.
-module(weir_pubsub_framing).

-export([message/3]).
-export([gap/4]).

-export_type([framing/0, message/0, place/0]).

-type framing() :: {module(), Argument :: term()}.
%% A module of this behaviour, and the first argument of its callbacks.

-type place() :: weir_pubsub_id:id() | weir_pubsub_id:several().

-type message() :: {message, place(), Data :: binary(), weir_pubsub:meta()}.
%% A message for many, or for one reader of several channels.

-callback message(Argument :: term(), weir_pubsub:channel(), message()) -> iodata().
%% The bytes of a message.

-callback gap(
    Argument :: term(), weir_pubsub:channel(), Missed :: weir_pubsub:missed(), Position :: place()
) -> iodata().
%% The bytes that announce a gap. The next message is the one after that position.

%% Polls that have missed messages do not wait in a crowd.
-optional_callbacks([gap/4]).

%% @private
-spec message(framing(), weir_pubsub:channel(), message()) -> binary().
message({Module, Argument}, Channel, Message) ->
    framed(fun() -> Module:message(Argument, Channel, Message) end, Module, Channel).

%% @private
-spec gap(framing(), weir_pubsub:channel(), weir_pubsub:missed(), place()) -> binary().
gap({Module, Argument}, Channel, Missed, Position) ->
    framed(fun() -> Module:gap(Argument, Channel, Missed, Position) end, Module, Channel).

%% The process that runs this serves channels or connections of others, which would end with it.
framed(Frame, Module, Channel) ->
    try
        iolist_to_binary(Frame())
    catch
        Class:Reason:Stack ->
            What = "framing a message failed, and its subscribers do not get it",
            Report = #{
                what => What, framing => Module, channel => Channel, reason => {Class, Reason}, stacktrace => Stack
            },
            ok = weir_reports:log(error, Report),
            <<>>
    end.
